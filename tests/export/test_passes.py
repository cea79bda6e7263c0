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
from edgeformer_export.passes.patterns import find_linears, find_lookups
from edgeformer_export.passes.pipeline import SMALL_CONSTANTS, PassFailedError, node_count, run_passes, weight_bytes
from edgeformer_export.passes.simplify import Simplify
from edgeformer_export.quantize.blocks import QuantizeBlocks
from edgeformer_export.quantize.calibration import Observer, QuantizationRange
from edgeformer_export.quantize.static import (
    GivenScales,
    QuantizeStatic,
    activations,
    projection_digests,
    quantize_columns,
)
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.graphs import linear_model, model_of, run, run_all
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
    model, (record,) = run_passes(linear_model(weight, bias, op), [QuantizeStatic({"x": bounds}, target, frozenset())])
    assert record.outcome == "changed"
    assert record.bytes_after < 0.5 * record.bytes_before

    integers, scale = quantize_columns(weight)
    activation = np.clip(np.rint(x / np.float32(bounds.scale)) + 64, 0, 255).astype(np.int64) - 64
    expected = (activation @ integers.astype(np.int64)) * (np.float32(bounds.scale) * scale)
    expected = expected + bias if bias is not None else expected
    found = run(model, x=x)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    unquantized = x @ weight + (bias if bias is not None else 0)
    assert np.abs(found - unquantized).mean() < 0.02 * np.abs(unquantized).mean() + 0.02
    # A row's result is its own: the same bits alone and among others.
    np.testing.assert_array_equal(run(model, x=x[2:3]), found[2:3])


@pytest.mark.parametrize("target", ["ort", "portable"])
@settings(max_examples=25, deadline=None)
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
    stated = {f"y{number}": GivenScales(rows, scale) for number, scale in enumerate(scales)}
    calibrated = QuantizationRange(6 / 255, 128)
    quantize = QuantizeStatic({"x": calibrated}, target, frozenset(), given=stated)
    model, _ = run_passes(plain, [quantize])

    found = run_all(model, x=x)
    for number, (weight, scale) in enumerate(zip(weights, scales, strict=True)):
        if scale is None:
            step, low, high = np.float32(calibrated.scale), -128, 127
        else:
            step, low, high = np.float32(scale), -127, 127
        integers = np.clip(np.rint(x / step), low, high).astype(np.int64)
        products = integers @ quantize_columns(weight, rows)[0].astype(np.int64)
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
    passes = [QuantizeStatic(ranges, "ort", frozenset()), QuantizeStatic(ranges, "portable", frozenset())]
    for quantize in (*passes, QuantizeBlocks(8)):
        chain = model_of(f"chain (float[R, 24] x) => (float[R, 24] y) {{ {products} }}", **weights)
        model, _ = run_passes(chain, [quantize])
        assert "MatMul" not in {node.op_type for node in model.graph}
        error = np.abs(run(model, x=x) - expected).mean() / np.abs(expected).mean()
        assert error < 0.05, quantize


def test_column_scales_cover_each_column_and_spare_zero() -> None:
    weight = np.array([[1.0, 0.0, -300.0], [-2.0, 0.0, 30.0]], np.float32)
    integers, scale = quantize_columns(weight)
    np.testing.assert_array_equal(np.abs(integers).max(axis=0), [127, 0, 127])
    np.testing.assert_allclose(integers * scale, weight, atol=float(scale.max()) / 2)


@pytest.mark.parametrize("target", TRACED_TARGETS)
def test_a_tied_table_is_quantized_to_one_tensor(store: Store, target: Target) -> None:
    graphs = store.traced("post_norm", target).graphs
    digests = projection_digests(graphs[DECODER_FILE].graph)
    shape = (300, 32) if target == "ort" else (32, 300)
    tables = {}
    for name, model in (("encoder", graphs[ENCODER_FILE]), ("decoder", graphs[DECODER_FILE])):
        ranges = dict.fromkeys(activations(model.graph), QuantizationRange(0.05, 128))
        (lookup,) = find_lookups(model.graph)
        model, _ = run_passes(model, [QuantizeStatic(ranges, target, digests)])
        assert lookup.op_type == "Gather"
        tables[name] = [
            value.const_value.numpy()
            for value in model.graph.initializers.values()
            if value.const_value is not None and tuple(value.const_value.shape) == shape
        ]
    assert len(tables["encoder"]) == 1
    assert tables["decoder"]
    for table in tables["decoder"]:
        assert table.dtype == np.int8
        np.testing.assert_array_equal(table, tables["encoder"][0])


@pytest.mark.slow
def test_untied_source_table_keeps_one_row_per_token(store: Store) -> None:
    graphs = store.traced("untied_silu").graphs
    ranges = dict.fromkeys(activations(graphs[ENCODER_FILE].graph), QuantizationRange(0.05, 128))
    digests = projection_digests(graphs[DECODER_FILE].graph)
    model, _ = run_passes(graphs[ENCODER_FILE], [QuantizeStatic(ranges, "ort", digests)])
    tensors = [value.const_value for value in model.graph.initializers.values() if value.const_value is not None]
    shapes = [tuple(tensor.shape) for tensor in tensors if tensor.dtype == ir.DataType.INT8]
    assert [shape for shape in shapes if 300 in shape] == [(300, 32)]


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
    quantized, (record,) = run_passes(model(arrays), [QuantizeStatic({}, "ort", frozenset())])
    assert record.outcome == "changed"
    assert record.bytes_after < 0.45 * record.bytes_before
    rounded = dict(arrays)
    for name in ("w", "r"):  # one scale for each gate of each unit
        rows = arrays[name].reshape(-1, arrays[name].shape[2])
        integers, scale = quantize_columns(rows.T)
        rounded[name] = (integers * scale).T.reshape(arrays[name].shape)
    np.testing.assert_allclose(run(quantized, x=x), run(model(rounded), x=x), atol=1e-6)
    assert np.abs(run(quantized, x=x) - run(model(arrays), x=x)).max() < 0.05


def test_a_convolution_is_stored_with_a_scale_per_output_channel() -> None:
    weight = RANDOM.normal(size=(16, 10, 3)).astype(np.float32) * np.arange(1, 17, dtype=np.float32)[:, None, None]
    layer = "y = Conv<pads = [1, 1], kernel_shape = [3]>(x, w)"
    plain = model_of(f"conv (float[N, 10, S] x) => (float[N, 16, S] y) {{ {layer} }}", w=weight)
    feed = RANDOM.normal(size=(2, 10, 7)).astype(np.float32)
    expected = run(plain, x=feed)
    quantized, (record,) = run_passes(plain, [QuantizeStatic({}, "ort", frozenset())])
    assert record.bytes_after < 0.4 * record.bytes_before
    error = np.abs(run(quantized, x=feed) - expected).max(axis=(0, 2))
    assert (error < 0.02 * np.abs(expected).max(axis=(0, 2))).all()  # in small channels too


@pytest.mark.parametrize("target", ["ort", "portable"])
def test_a_table_that_the_graph_transposes_is_quantized_too(target: Target) -> None:
    table = RANDOM.normal(size=(40, 24)).astype(np.float32)
    product = "transposed = Transpose<perm = [1, 0]>(table) y = MatMul(x, transposed)"
    model = model_of(f"product (float[R, 24] x) => (float[R, 40] y) {{ {product} }}", table=table)
    x = RANDOM.uniform(-1, 1, size=(5, 24)).astype(np.float32)
    assert len(projection_digests(model.graph)) == 1
    bounds = QuantizationRange(scale=2 / 255, zero_point=128)
    quantized, _ = run_passes(model, [QuantizeStatic({"x": bounds}, target, frozenset())])
    assert "Transpose" not in {node.op_type for node in quantized.graph}
    np.testing.assert_allclose(run(quantized, x=x), x @ table.T, atol=0.1)


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
        nodes, size = node_count(model), weight_bytes(model)
        passes = optimizations(file, target, in_blocks=in_blocks, for_cuda=False)
        optimized, records = run_passes(model, passes)
        assert [record.name for record in records] == [type(graph_pass).__name__ for graph_pass in passes]
        kinds = Counter(node.op_type for node in optimized.graph)
        assert not kinds & Counter({"Identity": 1, "Dropout": 1})
        # A norm of vector instructions is four nodes instead of one; nothing else adds any.
        assert node_count(optimized) - 3 * kinds["SimplifiedLayerNormalization"] <= nodes
        assert weight_bytes(optimized) <= size + SMALL_CONSTANTS


class Grow(ir.passes.InPlacePass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        node = ir.node("Identity", [model.graph.inputs[0]])
        node.outputs[0].name = "grown"
        model.graph.append(node)
        return ir.passes.PassResult(model, modified=True)


class Break(ir.passes.InPlacePass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        raise ValueError("out of cheese")


def test_a_pass_that_makes_the_graph_worse_is_rejected() -> None:
    model = linear_model(np.ones((20, 20), np.float32), None, "MatMul")
    result, (record,) = run_passes(model, [Grow()])
    assert (record.nodes_before, record.nodes_after, record.outcome) == (1, 2, "rejected")
    assert node_count(result) == 1


def test_a_failing_pass_is_named_with_those_before_it() -> None:
    model = linear_model(np.ones((20, 20), np.float32), None, "MatMul")
    with pytest.raises(PassFailedError, match=r"Pass Break failed \(passes before it: Simplify\): out of cheese"):
        run_passes(model, [Simplify(), Break()])


def test_simplify_folds_constants_and_keeps_results() -> None:
    weight = RANDOM.normal(size=(20, 20)).astype(np.float32)
    body = "twice = Add(w, w) y = MatMul(x, twice)"
    model = model_of(f"folded (float[R, 20] x) => (float[R, 20] y) {{ {body} }}", w=weight)
    x = RANDOM.normal(size=(3, 20)).astype(np.float32)
    simplified, (record,) = run_passes(model, [Simplify()])
    assert (record.nodes_before, record.nodes_after) == (2, 1)
    assert (record.removed, record.added) == ({"Add": 1}, {})
    np.testing.assert_allclose(run(simplified, x=x), x @ (2 * weight), rtol=1e-5, atol=1e-5)


def test_calibration_covers_all_that_was_observed() -> None:
    observer = Observer()
    for part in np.split(np.linspace(-1, 3, 2000, dtype=np.float32), 4):
        observer.observe(part)
    bounds = observer.range()
    assert bounds.scale == pytest.approx(4 / 255, rel=1e-3)
    assert bounds.zero_point == 64


def test_ranges_always_hold_zero() -> None:
    observer = Observer()
    observer.observe(np.full(100, 5.0, np.float32))
    bounds = observer.range()
    assert bounds.zero_point == 0
    assert bounds.scale * 255 == pytest.approx(5.0, rel=1e-3)


# What a pass did is told by the graph, not by the pass.


class Rename(ir.passes.InPlacePass):
    """Change names, documentation and metadata only, and claim to have changed the graph."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        for index, node in enumerate(model.graph):
            node.doc_string, node.metadata_props["tracer"] = "elsewhere", "gone"
            if not node.outputs[0].is_graph_output():
                node.outputs[0].name, node.outputs[0].shape = f"renamed{index}", None
        return ir.passes.PassResult(model, modified=True)


class RenameOutput(ir.passes.InPlacePass):
    def call(self, model: ir.Model) -> ir.passes.PassResult:
        model.graph.outputs[0].name = "renamed"
        return ir.passes.PassResult(model, modified=True)


class Unmet(ir.passes.InPlacePass):
    def requires(self, model: ir.Model) -> None:
        raise ValueError("no cheese")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        raise AssertionError("called")


def small_linear() -> ir.Model:
    return linear_model(np.ones((20, 20), np.float32), np.ones(20, np.float32), "MatMul")


def test_names_and_metadata_are_no_change() -> None:
    _, (record,) = run_passes(small_linear(), [Rename()])
    assert (record.outcome, record.removed, record.added) == ("unchanged", {}, {})


def test_interface_and_conditions_are_checked() -> None:
    with pytest.raises(
        PassFailedError, match=r"Pass RenameOutput failed \(passes before it: none\): it changed .*outp"
    ):
        run_passes(small_linear(), [RenameOutput()])
    with pytest.raises(PassFailedError, match=r"Pass Unmet failed \(passes before it: Rename\): .*: no cheese"):
        run_passes(small_linear(), [Rename(), Unmet()])


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
