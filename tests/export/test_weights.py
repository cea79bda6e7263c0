"""Weights apart from their graphs: no message holds them, however large they are, and no step needs many copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxsim
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeformer_export import weights
from edgeformer_export.export import export_run
from edgeformer_export.passes.half import HalfPrecisionPass
from edgeformer_export.passes.simplify import SimplifyPass
from edgeformer_export.quantize.blocks import quantize_blocks
from edgeformer_export.quantize.layers import Layer, WeightReader
from edgeformer_export.quantize.static import quantize_rows
from edgeformer_export.quantize.strategies import make_table
from edgeformer_export.weights import MIN_BYTES, digest, open_graph, rewritten, row_slices
from edgeformer_runtime.precision import PRECISIONS
from tests.graphs import linear_model, model_of, run_all
from tests.store import CPU_PRECISIONS, Store, with_agreement

RANDOM = np.random.default_rng(0)


@pytest.mark.slow
def test_graphs_of_more_than_two_gibibytes_are_simplified_and_run() -> None:
    tables = [np.zeros((180_000, 1024), np.float32) for _ in range(3)]  # pages of zeros, which take no memory
    for table in tables:
        table[179_999, 5] = 1
    sums = "y = Sum(r0, r1, r2)"
    rows = " ".join(f"r{number} = Gather(table{number}, i)" for number in range(3))
    first = {f"table{number}": table[:1] for number, table in enumerate(tables)}
    model = model_of(f"lookups (int64[R] i) => (float[R, 1024] y) {{ {rows} {sums} }}", **first)
    for value, table in zip(model.graph.initializers.values(), tables, strict=True):
        value.const_value, value.shape = ir.tensor(table), ir.Shape(table.shape)
    assert sum(table.nbytes for table in tables) > 2**31
    simplified = SimplifyPass()(model).model
    graph = open_graph("encoder.onnx", simplified)
    (rows,) = graph.session.run(["y"], {"i": np.array([3, 179_999])})
    assert rows.shape == (2, 1024)
    assert (rows.sum(), rows[1, 5]) == (3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_no_message_holds_a_large_weight_during_an_export(
    precision: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_graphs = store.model_graphs("post_norm")  # which is traced
    serialize, simplify, messages = ir.serde.serialize_model, onnxsim.simplify, []

    def checked(model: onnx.ModelProto) -> onnx.ModelProto:
        messages.append(model)
        assert all(len(tensor.raw_data) < MIN_BYTES for tensor in model.graph.initializer)
        return model

    monkeypatch.setattr(ir.serde, "serialize_model", lambda *args, **options: checked(serialize(*args, **options)))
    monkeypatch.setattr(onnxsim, "simplify", lambda model, **options: simplify(checked(model), **options))
    with mock.patch.dict(PRECISIONS, with_agreement(0.85)):
        export_run(model_graphs.run, tmp_path / "bundle", precision=precision, model_graphs=model_graphs)
    assert len(messages) >= 5  # two graphs to match tensors in, three to write


def test_a_graph_is_rewritten_without_its_large_weights() -> None:
    weight, bias = RANDOM.normal(size=(24, 40)).astype(np.float32), RANDOM.normal(size=40).astype(np.float32)
    model, x = linear_model(weight, bias, "MatMul"), RANDOM.normal(size=(3, 24)).astype(np.float32)

    def renamed(message: onnx.ModelProto) -> onnx.ModelProto:
        assert [tensor.name for tensor in message.graph.initializer] == ["b"]
        assert [(value.name, value.type.tensor_type.elem_type) for value in message.graph.input] == [("x", 1), ("w", 1)]
        message.graph.node[0].name = "renamed"
        return message

    after = rewritten(model, renamed)
    assert after.graph[0].name == "renamed"
    assert [value.name for value in after.graph.inputs] == ["x"]
    tensor = after.graph.initializers["w"].const_value
    assert tensor is not None
    assert np.shares_memory(tensor.numpy(), weight)
    np.testing.assert_array_equal(run_all(after, x=x)["y"], run_all(model, x=x)["y"])


def test_a_weight_that_the_rewriting_makes_useless_is_dropped() -> None:
    model = linear_model(RANDOM.normal(size=(24, 40)).astype(np.float32), None, "MatMul")

    def emptied(message: onnx.ModelProto) -> onnx.ModelProto:
        del message.graph.node[:]
        message.graph.node.append(onnx.helper.make_node("ReduceSum", ["x"], ["y"]))
        return message

    after = rewritten(model, emptied)
    assert [value.name for value in after.graph.inputs] == ["x"]
    assert not after.graph.initializers


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    size=st.integers(1, 200),
    order=st.sampled_from(["C", "F"]),
)
def test_an_array_is_hashed_in_parts_as_a_whole(shape: list[int], size: int, order: Any) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    whole = digest(array)
    with mock.patch.object(weights, "CHUNK", size):
        assert digest(np.array(array, order=order)) == whole
        parts = [array[rows] for rows in row_slices(array)]
    np.testing.assert_array_equal(np.concatenate(parts), array)
    assert all(part.nbytes <= max(size, array[0].nbytes) for part in parts)


def halved(weight: NDArray[np.float32]) -> list[Any]:
    model = HalfPrecisionPass()(linear_model(weight, None, "MatMul")).model
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    assert tensor.dtype == ir.DataType.FLOAT16
    return [tensor.numpy()]


def report(weight: NDArray[np.float32]) -> list[Any]:
    layer = Layer("layer", (WeightReader("decoder.onnx", "y", "linear", weight),))
    return [make_table([layer], precision, dict)[0].report for precision in ("int8", "int4")]


@pytest.mark.parametrize(
    "step",
    [
        lambda weight: [quantize_rows(weight).integers, quantize_rows(weight.T).integers],
        lambda weight: [quantize_blocks(weight, 16).packed, quantize_blocks(weight, 32).scales],
        halved,
        report,
    ],
    ids=["rows", "blocks", "half", "report"],
)
def test_large_weights_are_rounded_in_parts_as_a_whole(
    step: Callable[[NDArray[np.float32]], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = RANDOM.normal(size=(48, 56)).astype(np.float32)
    weight[0, :2] = 1e-9, 1e9
    whole = step(weight)
    monkeypatch.setattr(weights, "CHUNK", 5 * weight.shape[1] * 4)
    for expected, found in zip(whole, step(weight), strict=True):
        np.testing.assert_equal(found, expected)
