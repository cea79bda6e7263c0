"""Operators that a bundle needs and an engine may lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.selfcheck import operators
from edgeformer_runtime.selfcheck.operators import check_operators, read_graph
from tests.bundles import copy_of, edit_manifest, rehash


def test_graphs_are_read_as_onnx_reads_them(small_bundles: dict[Precision, Path]) -> None:
    onnx = pytest.importorskip("onnx")
    for bundle in small_bundles.values():
        expected_kinds, expected_nodes = set(), 0
        for file in ("encoder.onnx", "decoder.onnx", "attention.onnx"):
            opsets, found = read_graph((bundle / file).read_bytes())
            model = onnx.load(bundle / file, load_external_data=False)
            assert opsets == {one.domain: one.version for one in model.opset_import}
            assert found == [(node.domain, node.op_type) for node in model.graph.node]
            expected_kinds |= set(found)
            expected_nodes += len(found)
        checked = check_operators(open_bundle(bundle))
        assert (checked.kinds, checked.nodes) == (len(expected_kinds), expected_nodes)
        assert checked.opsets["ai.onnx"] == 20


def test_operators_of_inner_graphs_count_too() -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    value = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    inner = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "inner", [], [value])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    flag = helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [1])
    model = helper.make_model(helper.make_graph([node], "outer", [flag], [value]))
    assert read_graph(model.SerializeToString())[1] == [("", "If"), ("", "Erf"), ("", "Erf")]


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
    known = dict(operators._known())
    change(known)
    monkeypatch.setattr(operators, "_known", lambda: known)
    with pytest.raises(BundleError, match=message):
        check_operators(open_bundle(small_bundle))


def test_an_engine_that_does_not_tell_is_believed(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_known", dict)
    assert check_operators(open_bundle(small_bundle)).nodes > 0


def test_operator_sets_must_be_those_of_the_manifest(small_bundle: Path, tmp_path: Path) -> None:
    bundle = edit_manifest(copy_of(small_bundle, tmp_path), lambda tree: tree["opsets"].update({"": 21}))
    with pytest.raises(BundleError, match=r"`encoder\.onnx` has operator sets ai\.onnx 20, the manifest ai\.onnx 21"):
        check_operators(open_bundle(bundle))


@pytest.mark.parametrize("content", [b"\x3a", b"\x3a\x05\x0a", b"\x42\x04\x0a\x02\xff\xfe"])
def test_what_is_no_graph_is_an_error(small_bundle: Path, tmp_path: Path, content: bytes) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "decoder.onnx").write_bytes(content)
    with pytest.raises(BundleError, match=r"`decoder\.onnx` is no ONNX graph"):
        check_operators(open_bundle(rehash(bundle)))
