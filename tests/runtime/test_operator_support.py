"""Operators that a bundle needs and an engine may lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.selfcheck import operators
from edgeformer_runtime.selfcheck.operators import check_operators
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest, rehash


def test_the_manifest_lists_what_onnx_finds_in_the_graphs(small_bundles: dict[Precision, Path]) -> None:
    onnx = pytest.importorskip("onnx")
    for path in small_bundles.values():
        bundle, kinds, nodes = open_bundle(path), set(), 0
        for file in ("encoder.onnx", "decoder.onnx", "attention.onnx"):
            model = onnx.load(path / file, load_external_data=False)
            assert {entry.domain: entry.version for entry in model.opset_import} == bundle.manifest.opsets
            names = [f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.node]
            assert Counter(names) == bundle.manifest.report.operators[file]
            kinds |= set(names)
            nodes += len(names)
        checked = check_operators(bundle)
        assert (checked.kinds, checked.nodes) == (len(kinds), nodes)
        assert checked.opsets["ai.onnx"] == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda known: known.pop(("", "Gather")), r"`encoder\.onnx` needs operator Gather of ai\.onnx 20"),
        (lambda known: known.update({("", "Gather"): [21]}), r"`decoder\.onnx` needs operator Gather of ai\.onnx 20"),
    ],
    ids=["unknown", "only in a later version"],
)
def test_an_operator_that_the_engine_lacks_is_named(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], object], message: str
) -> None:
    known = dict(operators.known_operators())
    change(known)
    monkeypatch.setattr(operators, "known_operators", lambda: known)
    with pytest.raises(BundleError, match=message):
        check_operators(open_bundle(small_bundle))


def test_an_engine_that_does_not_tell_is_believed(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "known_operators", dict)
    assert check_operators(open_bundle(small_bundle)).nodes > 0


def test_operators_without_a_domain_may_be_of_any(small_bundle: Path, tmp_path: Path) -> None:
    """Earlier exporters wrote bare names."""

    def change(tree: dict[str, Any]) -> None:
        operators = tree["report"]["operators"]
        for file, counts in operators.items():
            operators[file] = {name.rpartition(".")[2]: count for name, count in counts.items()}

    expected = check_operators(open_bundle(small_bundle))
    assert check_operators(open_bundle(edit_manifest(copy_of(small_bundle, tmp_path), change))) == expected


def test_a_graph_whose_operators_are_not_listed_is_an_error(small_bundle: Path, tmp_path: Path) -> None:
    bundle = edit_manifest(
        copy_of(small_bundle, tmp_path), lambda tree: tree["report"]["operators"].pop("encoder.onnx")
    )
    with pytest.raises(BundleError, match=r"does not list the operators of `encoder\.onnx`"):
        check_operators(open_bundle(bundle))


def test_what_is_no_graph_is_an_error(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "decoder.onnx").write_bytes(b"\x3a\x05\x0a")
    with pytest.raises(BundleError, match=r"`decoder\.onnx` is not a graph as edgeformer writes it"):
        Translator.open(rehash(bundle))
