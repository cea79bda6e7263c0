"""The small graphs that the runtime comes with are those that the exporter's script makes."""

from __future__ import annotations

import onnx

from edgeformer_export.runtime_graphs import runtime_graphs
from edgeformer_runtime.engines.graphs import FOLDER


def test_committed_graphs_are_what_the_script_makes() -> None:
    made = dict(runtime_graphs())
    assert {path for path in FOLDER.iterdir() if path.suffix == ".onnx"} == made.keys()
    for path, model in made.items():
        assert onnx.load(path) == model, path.name
