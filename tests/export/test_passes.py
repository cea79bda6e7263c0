"""Graph passes: the pipeline, simplification and quantization."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgeformer_export.model_graphs import optimizations
from edgeformer_export.passes import patterns
from edgeformer_export.passes.patterns import find_linears
from edgeformer_export.passes.pipeline import run_passes, weight_bytes
from edgeformer_export.passes.simplify import SimplifyPass
from edgeformer_export.quantize.calibration import Observer, QuantizationRange
from edgeformer_export.quantize.layers import ImportedScales
from edgeformer_export.quantize.static import quantize_rows
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.precision import Precision
from tests.graphs import linear_model, model_of, quantized, run, run_all
from tests.store import Store
from tests.variants import traced_variants

RANDOM = np.random.default_rng(0)
TRACED_TARGETS = ["ort", pytest.param("portable", marks=pytest.mark.slow)]


@pytest.mark.parametrize("target", ["ort", "portable"])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("biased", [True, False])
def test_quantized_product_follows_integer_arithmetic_exactly(target: Target, op: str, biased: bool) -> None:
    weight = RANDOM.normal(size=(24, 40)).astype(np.float32)
    bias = RANDOM.normal(size=40).astype(np.float32) if biased else None
    x = RANDOM.uniform(-1, 3, size=(5, 24)).astype(np.float32)
    bounds = QuantizationRange(scale=4 / 255, zero_point=64)
    model = quantized(linear_model(weight, bias, op), target=target, ranges=bounds)
    assert weight_bytes(model) < 0.5 * weight.nbytes

    rows = quantize_rows(weight.T)
    activation = np.clip(np.rint(x / np.float32(bounds.scale)) + 64, 0, 255).astype(np.int64) - 64
    expected = (activation @ rows.integers.T.astype(np.int64)) * (np.float32(bounds.scale) * rows.scales)
    expected = expected + bias if bias is not None else expected
    found = run(model, x=x)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    unquantized = x @ weight + (bias if bias is not None else 0)
    assert np.abs(found - unquantized).mean() < 0.02 * np.abs(unquantized).mean() + 0.02
    # A row's result is its own: the same bits alone and among others.
    np.testing.assert_array_equal(run(model, x=x[2:3]), found[2:3])


@pytest.mark.parametrize("target", ["ort", "portable"])
@settings(max_examples=10, deadline=None)
@given(scales=st.lists(st.sampled_from([None, 0.5 / 127, 2 / 127, 4 / 127]), min_size=1, max_size=4))
def test_products_of_one_activation_use_the_scales_stated_for_each(target: Target, scales: list[float | None]) -> None:
    random = np.random.default_rng(len(scales))
    weights = [random.normal(size=(24, 16)).astype(np.float32) for _ in scales]
    x = random.uniform(-3, 3, size=(5, 24)).astype(np.float32)
    outputs = ", ".join(f"float[R, 16] y{number}" for number in range(len(scales)))
    products = " ".join(f"y{number} = MatMul(x, w{number})" for number in range(len(scales)))
    plain = model_of(
        f"products (float[R, 24] x) => ({outputs}) {{ {products} }}",
        **{f"w{number}": weight for number, weight in enumerate(weights)},
    )
    rows = np.full(16, 3 / 127, np.float32)
    stated = {f"y{number}": ImportedScales(rows, scale) for number, scale in enumerate(scales)}
    calibrated = QuantizationRange(6 / 255, 128)
    found = run_all(quantized(plain, "int8", target, calibrated, stated), x=x)
    for number, (weight, scale) in enumerate(zip(weights, scales, strict=True)):
        if scale is None:
            step, low, high = np.float32(calibrated.scale), -128, 127
        else:
            step, low, high = np.float32(scale), -127, 127
        integers = np.clip(np.rint(x / step), low, high).astype(np.int64)
        products = integers @ quantize_rows(weight.T, rows).integers.T.astype(np.int64)
        np.testing.assert_allclose(found[f"y{number}"], products * (step * rows), rtol=2e-6, atol=2e-6)


def test_constants_of_one_name_have_one_content() -> None:
    graph = linear_model(np.zeros((4, 4), np.float32), None, "MatMul").graph
    first = patterns.constant(graph, "scale", np.array(1.5, np.float32))
    assert patterns.constant(graph, "scale", np.array(1.5, np.float32)) is first
    with pytest.raises(ValueError, match="two constants of the graph would be named `scale`"):
        patterns.constant(graph, "scale", np.array(2.5, np.float32))


def test_a_layer_fed_by_another_is_replaced_too() -> None:
    weights = {name: RANDOM.normal(size=(24, 24)).astype(np.float32) for name in ("w1", "w2", "w3")}
    x = RANDOM.uniform(-1, 1, size=(5, 24)).astype(np.float32)
    expected = x @ weights["w1"] @ weights["w2"] @ weights["w3"]
    products = "y1 = MatMul(x, w1) y2 = MatMul(y1, w2) y = MatMul(y2, w3)"
    ranges = {name: QuantizationRange(2 * size / 255, 128) for name, size in (("x", 1), ("y1", 20), ("y2", 90))}
    kinds: list[tuple[Precision, Target, float]] = [("int8", "ort", 0.05), ("int8", "portable", 0.05)]
    for precision, target, most in (*kinds, ("int4", "ort", 0.3)):
        chain = model_of(f"chain (float[R, 24] x) => (float[R, 24] y) {{ {products} }}", **weights)
        model = quantized(chain, precision, target, ranges)
        assert "MatMul" not in {node.op_type for node in model.graph}
        error = np.abs(run(model, x=x) - expected).mean() / np.abs(expected).mean()
        assert error < most, (precision, target)


def test_scales_cover_each_row_and_spare_zero() -> None:
    weight = np.array([[1.0, 0.0, -300.0], [-2.0, 0.0, 30.0]], np.float32)
    rows = quantize_rows(weight.T)
    np.testing.assert_array_equal(np.abs(rows.integers).max(axis=1), [127, 0, 127])
    np.testing.assert_allclose(rows.restored(), weight.T, atol=float(rows.scales.max()) / 2)


@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_keeps_its_arithmetic_with_weights_of_a_quarter_of_the_size(directions: int) -> None:
    arrays = {
        "w": RANDOM.normal(size=(directions, 4 * 8, 12)).astype(np.float32),
        "r": RANDOM.normal(size=(directions, 4 * 8, 8)).astype(np.float32),
        "b": RANDOM.normal(size=(directions, 2 * 4 * 8)).astype(np.float32),
    }

    def model(arrays: dict[str, NDArray[np.float32]]) -> ir.Model:
        direction = "bidirectional" if directions == 2 else "forward"
        layer = f'y = LSTM<hidden_size = 8, direction = "{direction}">(x, w, r, b)'
        return model_of(f"lstm (float[S, N, 12] x) => (float[S, {directions}, N, 8] y) {{ {layer} }}", **arrays)

    x = RANDOM.normal(size=(5, 3, 12)).astype(np.float32)
    smaller = quantized(model(arrays))
    assert weight_bytes(smaller) < 0.45 * weight_bytes(model(arrays))
    rounded = dict(arrays)
    for name in ("w", "r"):  # one scale for each gate of each unit
        rows = arrays[name].reshape(-1, arrays[name].shape[2])
        rounded[name] = quantize_rows(rows).restored().reshape(arrays[name].shape)
    np.testing.assert_allclose(run(smaller, x=x), run(model(rounded), x=x), atol=1e-6)
    assert np.abs(run(smaller, x=x) - run(model(arrays), x=x)).max() < 0.05


def test_a_convolution_is_stored_with_a_scale_per_output_channel() -> None:
    weight = RANDOM.normal(size=(16, 10, 3)).astype(np.float32) * np.arange(1, 17, dtype=np.float32)[:, None, None]
    layer = "y = Conv<pads = [1, 1], kernel_shape = [3]>(x, w)"
    plain = model_of(f"conv (float[N, 10, S] x) => (float[N, 16, S] y) {{ {layer} }}", w=weight)
    feed = RANDOM.normal(size=(2, 10, 7)).astype(np.float32)
    expected = run(plain, x=feed)
    smaller = quantized(plain)
    assert weight_bytes(smaller) < 0.4 * weight.nbytes
    error = np.abs(run(smaller, x=feed) - expected).max(axis=(0, 2))
    assert (error < 0.02 * np.abs(expected).max(axis=(0, 2))).all()  # in small channels too


@pytest.mark.parametrize("target", ["ort", "portable"])
def test_a_table_that_the_graph_transposes_is_quantized_too(target: Target) -> None:
    table = RANDOM.normal(size=(40, 24)).astype(np.float32)
    product = "transposed = Transpose<perm = [1, 0]>(table) y = MatMul(x, transposed)"
    model = model_of(f"product (float[R, 24] x) => (float[R, 40] y) {{ {product} }}", table=table)
    x = RANDOM.uniform(-1, 1, size=(5, 24)).astype(np.float32)
    quantized(model, target=target, ranges=QuantizationRange(scale=2 / 255, zero_point=128))
    assert "Transpose" not in {node.op_type for node in model.graph}
    np.testing.assert_allclose(run(model, x=x), x @ table.T, atol=0.1)


def test_a_product_with_one_column_stays_in_float() -> None:
    model = linear_model(RANDOM.normal(size=(400, 1)).astype(np.float32), None, "MatMul")
    assert list(find_linears(model.graph)) == []


def test_every_linear_layer_is_found(store: Store) -> None:
    graphs = store.traced().graphs
    # Four products of self-attention, two of cross-attention (keys and values are the encoder's), two of the
    # feed-forward layers, and the output projection.
    assert len(list(find_linears(graphs[DECODER_FILE].graph))) == 2 * (4 + 2 + 2) + 1
    # Four and two in each layer; keys and values for each layer of the decoder.
    assert len(list(find_linears(graphs[ENCODER_FILE].graph))) == 2 * (4 + 2) + 2 * 2


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["post_norm", "free_widths"])
def test_portable_graphs_have_standard_operators_only(store: Store, variant: str) -> None:
    graphs = store.traced(variant, "portable").graphs
    for model in graphs.values():
        assert {node.domain for node in model.graph} == {""}


@pytest.mark.parametrize("target", TRACED_TARGETS)
@pytest.mark.parametrize("in_blocks", [False, True])
def test_optimized_graphs_hold_no_waste(store: Store, target: Target, in_blocks: bool) -> None:
    graphs = store.traced("post_norm", target).graphs
    for file, model in graphs.items():
        nodes, size = len(model.graph), weight_bytes(model)
        passes = optimizations(file, target, in_blocks=in_blocks, for_cuda=False)
        optimized, records = run_passes(model, passes)
        assert [record.name for record in records] == [type(graph_pass).__name__ for graph_pass in passes]
        kinds = Counter(node.op_type for node in optimized.graph)
        assert not kinds & Counter({"Identity": 1, "Dropout": 1})
        # A norm of vector instructions is four nodes instead of one; nothing else adds any.
        assert len(optimized.graph) - 3 * kinds["SimplifiedLayerNormalization"] <= nodes
        assert weight_bytes(optimized) <= size + 1024  # shapes, axes, sizes


class Break(ir.passes.InPlacePass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        raise ValueError("out of cheese")


def test_a_failing_pass_is_named_with_those_before_it() -> None:
    model = linear_model(np.ones((20, 20), np.float32), None, "MatMul")
    with pytest.raises(ValueError, match="out of cheese") as caught:
        run_passes(model, [SimplifyPass(), Break()])
    assert caught.value.__notes__ == ["Raised by pass Break, after ['SimplifyPass']."]


def test_simplify_folds_constants_and_keeps_results() -> None:
    weight = RANDOM.normal(size=(20, 20)).astype(np.float32)
    body = "twice = Add(w, w) y = MatMul(x, twice)"
    model = model_of(f"folded (float[R, 20] x) => (float[R, 20] y) {{ {body} }}", w=weight)
    x = RANDOM.normal(size=(3, 20)).astype(np.float32)
    simplified, (record,) = run_passes(model, [SimplifyPass()])
    assert (record.nodes_before, record.nodes_after) == (2, 1)
    assert [*simplified.graph.initializers] == ["w"]
    np.testing.assert_allclose(run(simplified, x=x), x @ (2 * weight), rtol=1e-5, atol=1e-5)


def test_a_shared_weight_is_not_stored_twice_for_being_transposed() -> None:
    table = RANDOM.normal(size=(40, 20)).astype(np.float32)
    body = "t = Transpose<perm = [1, 0]>(table) y = MatMul(x, t) z = Gather(table, i)"
    text = f"tied (float[R, 20] x, int64[R] i) => (float[R, 40] y, float[R, 20] z) {{ {body} }}"
    simplified, (record,) = run_passes(model_of(text, table=table), [SimplifyPass()])
    assert record.bytes_after == table.nbytes
    assert [linear.constant for linear in find_linears(simplified.graph)] == ["table"]


def test_calibration_covers_all_that_was_observed() -> None:
    observer = Observer()
    for part in np.split(np.linspace(-1, 3, 2000, dtype=np.float32), 4):
        observer.observe(part)
    bounds = observer.range()
    assert bounds.scale == pytest.approx(4 / 255, rel=1e-3)
    assert bounds.zero_point == 64
    positive = Observer()
    positive.observe(np.full(100, 5.0, np.float32))
    assert positive.range().zero_point == 0, "zero is always in the range"
    assert positive.range().scale * 255 == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize("variant", traced_variants())
def test_the_tracer_leaves_no_duplicates_and_nothing_unused(store: Store, variant: str) -> None:
    """So the pipeline needs no passes for that."""
    for file, model in store.traced(variant).graphs.items():
        model, _ = run_passes(model, optimizations(file, "portable", in_blocks=False, for_cuda=False))
        cleaning = [
            common.CommonSubexpressionEliminationPass(),
            common.DeduplicateInitializersPass(),
            common.RemoveUnusedNodesPass(),
            common.RemoveUnusedOpsetsPass(),
        ]
        assert not [cleaner for cleaner in cleaning if cleaner(model).modified]
