"""Weights in blocks of 8 and 4 bits: rounding, products, look-ups, and what is stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from edgeformer_export.passes.patterns import constant_array, find_linears, find_lookups
from edgeformer_export.passes.pipeline import run_passes
from edgeformer_export.quantize.blocks import (
    QuantizeBlocks,
    choose_block_size,
    dequantize_blocks,
    quantize_blocks,
)
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.static import QuantizeStatic, activations
from edgeformer_export.quantize.strategies import STRATEGIES, InBlocks
from edgeformer_export.weights import WeightsFile
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, SOURCE, SOURCE_LENGTH
from edgeformer_runtime.precision import PRECISIONS
from tests.graphs import linear_model, model_of, run, run_all
from tests.store import Store
from tests.variants import traced_variants

RANDOM = np.random.default_rng(0)
BITS = [8, 4]


def in_blocks(matrix: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """``(rows, blocks, size)``, the last block filled up with zeros."""
    return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % size))).reshape(len(matrix), -1, size)


def rounding_bound(x: NDArray[np.float32], weight: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Largest error of ``x @ weight.T`` if each block of ``x`` is rounded to 127 steps of its largest value.

    A value is then wrong by half a step at most, and a block of the product by that times the sum of the weights'
    magnitudes.
    """
    half_steps = np.abs(in_blocks(x, size)).max(axis=2) / 127 / 2
    bound: NDArray[np.float32] = half_steps @ np.abs(in_blocks(weight, size)).sum(axis=2).T
    return bound


def lookup_model(table: NDArray[np.float32]) -> ir.Model:
    text = f"lookup (int64[N, S] ids) => (float[N, S, {table.shape[1]}] y) {{ y = Gather(table, ids) }}"
    return model_of(text, table=table)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", [16, 17, 96, 300, 512])
@pytest.mark.parametrize(("op", "biased"), [("MatMul", True), ("MatMul", False), ("Gemm", True), ("Gemm", False)])
def test_a_product_is_that_of_the_rounded_weight(bits: int, width: int, op: str, biased: bool) -> None:
    weight = RANDOM.normal(size=(width, 33)).astype(np.float32)
    bias = RANDOM.normal(size=33).astype(np.float32) if biased else None
    # Blocks of very different sizes: a scale for the whole row would lose the small ones.
    sizes = 10.0 ** RANDOM.integers(-3, 2, (32, width // 16 + 1)).repeat(16, axis=1)[:, :width]
    x = (RANDOM.normal(size=(32, width)) * sizes).astype(np.float32)
    model, (record,) = run_passes(linear_model(weight, bias, op), [QuantizeBlocks(bits)])
    assert [node.op_type for node in model.graph] == ["MatMulNBits"]

    size = choose_block_size(width, bits)
    blocks = quantize_blocks(np.ascontiguousarray(weight.T), bits, size)
    rounded = dequantize_blocks(blocks, bits, width)
    biases = 0 if bias is None else bias.nbytes
    assert record.bytes_before == weight.nbytes + biases
    assert record.bytes_after == 33 * -(-width // size) * (size * bits // 8 + 4) + biases

    expected = x.astype(np.float64) @ rounded.T + (0 if bias is None else bias)
    error = np.abs(run(model, x=x) - expected)
    # Sums in float32 add a little to what the rounding of x may do.
    assert (error <= rounding_bound(x, rounded, size) + 1e-6 * (np.abs(x) @ np.abs(rounded.T) + 1)).all()


@pytest.mark.parametrize("bits", BITS)
def test_a_row_gives_the_same_alone_and_among_others(bits: int) -> None:
    model, _ = run_passes(
        linear_model(RANDOM.normal(size=(512, 96)).astype(np.float32), None, "MatMul"), [QuantizeBlocks(bits)]
    )
    x = RANDOM.normal(size=(32, 512)).astype(np.float32) * np.arange(1, 33, dtype=np.float32)[:, None]
    together = run(model, x=x)
    for row in (0, 7, 31):
        alone = run(model, x=x[row : row + 1])[0]
        # The same integers, added up in another order.
        assert np.abs(alone - together[row]).max() <= 1e-5 * np.abs(together[row]).max()


@pytest.mark.parametrize("bits", BITS)
def test_an_even_number_of_rows_gives_exactly_the_same_in_any_company(bits: int) -> None:
    model, _ = run_passes(
        linear_model(RANDOM.normal(size=(512, 96)).astype(np.float32), None, "MatMul"), [QuantizeBlocks(bits)]
    )
    x = RANDOM.normal(size=(48, 512)).astype(np.float32)
    together = run(model, x=x)
    for begin in (0, 1, 10):
        for rows in (2, 4, 6, 10, 16, 34):
            np.testing.assert_array_equal(run(model, x=x[begin : begin + rows]), together[begin : begin + rows])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("width", [16, 17, 64, 300, 512])
def test_a_look_up_reads_exactly_the_rounded_rows(bits: int, width: int) -> None:
    table = RANDOM.normal(size=(50, width)).astype(np.float32)
    model, (record,) = run_passes(lookup_model(table), [QuantizeBlocks(bits)])
    assert record.bytes_after < (0.6 if width == 17 else 0.32) * record.bytes_before
    ids = RANDOM.integers(0, 50, (3, 7))
    rounded = dequantize_blocks(quantize_blocks(table, bits, choose_block_size(width, bits)), bits, width)
    np.testing.assert_array_equal(run(model, ids=ids), rounded[ids])


def test_8_bits_use_the_whole_range_of_each_block() -> None:
    sizes = 10.0 ** RANDOM.integers(-20, 20, (20, 1))
    matrix = (RANDOM.normal(size=(20, 256)) * sizes).astype(np.float32)
    matrix[3, :64] = 0
    blocks = quantize_blocks(matrix, 8, 64)
    largest = np.abs(blocks.packed.astype(int) - 128).max(axis=2)
    assert largest[3, 0] == 0
    assert (np.delete(largest.ravel(), 3 * 4) == 127).all()
    error = np.abs(in_blocks(dequantize_blocks(blocks, 8, 256) - matrix, 64)).max(axis=2)
    assert (error <= 0.5001 * blocks.scales).all()


@pytest.mark.parametrize("block_size", [16, 32, 128, 256])
def test_4_bits_are_rounded_with_nearly_the_least_squared_error(block_size: int) -> None:
    matrix = (RANDOM.standard_t(5, size=(100, 1024)) / 50).astype(np.float32)
    matrix[5, : 2 * block_size] = 0
    blocks = quantize_blocks(matrix, 4, block_size)
    rounded = dequantize_blocks(blocks, 4, 1024)
    assert not rounded[5, : 2 * block_size].any()
    values = in_blocks(matrix, block_size).astype(np.float64)

    def errors(scale: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squared error of each block with these scales."""
        scale = np.where(scale == 0, 1, scale)[:, :, None]
        result: NDArray[np.float64] = ((np.clip(np.rint(values / scale), -8, 7) * scale - values) ** 2).sum(axis=2)
        return result

    found = ((in_blocks(rounded, block_size) - values) ** 2).sum(axis=2)
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
    # In every block at least as good as the largest value at 7, or at -8.
    for plain in (np.abs(largest) / 7, largest / -8):
        assert (found <= errors(plain) * (1 + 1e-5)).all()
    best = np.min(
        [errors(largest / divisor) for divisor in (*np.arange(-12, -4, 0.05), *np.arange(4, 12, 0.05))], axis=0
    )
    assert found.sum() <= 1.01 * best.sum()


@pytest.mark.parametrize(
    ("width", "bits", "expected"),
    # 1000: 8 scales and 24 values more than the row has, rather than 16 scales.
    [(512, 4, 256), (256, 8, 256), (192, 4, 64), (96, 4, 32), (48, 8, 16), (48, 4, 64), (16, 8, 16), (1000, 8, 256)],
)
def test_the_block_size_takes_fewest_bytes(width: int, bits: int, expected: int) -> None:
    assert choose_block_size(width, bits) == expected


@pytest.mark.parametrize("bits", BITS)
def test_a_tied_table_is_stored_once_for_both_graphs(store: Store, tmp_path: Path, bits: int) -> None:
    graphs = store.traced("post_norm").graphs
    ranges = dict.fromkeys(activations(graphs[ENCODER_FILE].graph), QuantizationRange(0.05, 128))
    lookups_only = {str(node.outputs[0].name) for node in find_lookups(graphs[ENCODER_FILE].graph)}
    encoder, records = run_passes(
        graphs[ENCODER_FILE], [QuantizeBlocks(bits, only=lookups_only), QuantizeStatic(ranges, "ort", frozenset())]
    )
    assert [record.outcome for record in records] == ["changed", "changed"]
    decoder, _ = run_passes(graphs[DECODER_FILE], [QuantizeBlocks(bits)])

    nodes = [node for model in (encoder, decoder) for node in model.graph]
    operators = Counter(node.op_type for node in nodes)
    assert operators["GatherBlockQuantized"] == 2
    assert operators["MatMulIntegerToFloat"] > 0  # the encoder's products are those of QuantizeStatic
    WeightsFile(tmp_path / "weights").move([encoder, decoder])
    lookups = [node for node in nodes if node.op_type == "GatherBlockQuantized"]
    (projection,) = [node for node in nodes if node.attributes.get_int("N", 0) == 300]
    packed, scales = ([lookup.inputs[index] for lookup in lookups] for index in (0, 2))
    for tied in ([*packed, projection.inputs[1]], [*scales, projection.inputs[2]]):
        tensors = [value.const_value for value in tied if value is not None]
        assert len({(tensor.offset, tensor.length) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}) == 1


@pytest.mark.parametrize("variant", traced_variants(["post_norm", "untied_silu", "lstm_mlp"]))
def test_position_tables_stay_and_all_else_is_replaced(store: Store, variant: str) -> None:
    graphs = store.traced(variant).graphs
    for model in graphs.values():
        linears, lookups = len(list(find_linears(model.graph))), len(list(find_lookups(model.graph)))
        blocks, _ = run_passes(model, [QuantizeBlocks(8)])
        assert not [*find_linears(blocks.graph), *find_lookups(blocks.graph)]
        operators = Counter(node.op_type for node in blocks.graph)
        assert (operators["MatMulNBits"], operators["GatherBlockQuantized"]) == (linears, lookups)
        kept = [value for name, value in blocks.graph.initializers.items() if name.endswith("positions")]
        assert [value.dtype for value in kept] == [ir.DataType.FLOAT] * (variant != "lstm_mlp")


@pytest.mark.slow
def test_output_bias_of_a_tied_table_is_part_of_the_product(store: Store) -> None:
    model = store.run("output_bias").load_model()
    blocks, _ = run_passes(store.traced("output_bias").graphs[DECODER_FILE], [QuantizeBlocks(4)])
    (projection,) = [node for node in blocks.graph if node.attributes.get_int("N", 0) == 300]
    bias = constant_array(projection.inputs[5])
    np.testing.assert_array_equal(bias, model.get_parameter("projection.bias").detach().numpy())


@pytest.mark.parametrize("bits", BITS)
def test_a_whole_graph_computes_what_rounded_weights_give(store: Store, bits: int) -> None:
    model = store.traced("post_norm").graphs[ENCODER_FILE]
    blocks, (record,) = run_passes(ir.from_proto(ir.to_proto(model)), [QuantizeBlocks(bits)])
    assert record.outcome == "changed"
    # The same graph in fp32, with rounded weights.
    products = [(linear.nodes[0].inputs[1], True) for linear in find_linears(model.graph)]
    for value, transposed in [*products, *((node.inputs[0], False) for node in find_lookups(model.graph))]:
        weight = constant_array(value).T if transposed else constant_array(value)
        size = choose_block_size(weight.shape[1], bits)
        rounded = dequantize_blocks(quantize_blocks(weight, bits, size), bits, weight.shape[1])
        assert value is not None
        value.const_value = ir.tensor(rounded.T if transposed else rounded)
    source = np.random.default_rng(0).integers(4, 300, (3, 9))
    feeds = {SOURCE: source, SOURCE_LENGTH: np.array([9, 4, 7])}
    expected, found = run_all(model, **feeds), run_all(blocks, **feeds)
    compared = [name for name, array in expected.items() if array.dtype == np.float32 and array.ndim == 4]
    assert len(compared) == 4  # keys and values for each of the decoder's two layers
    for name in compared:
        error = np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max()
        # What is left is the rounding of activations to 127 steps, in two layers.
        assert 0 < error < 0.03


def test_narrow_weights_stay_in_float() -> None:
    model = linear_model(RANDOM.normal(size=(12, 64)).astype(np.float32), None, "MatMul")
    result, (record,) = run_passes(model, [QuantizeBlocks(4)])
    assert record.outcome == "unchanged"
    assert [node.op_type for node in result.graph] == ["MatMul"]


def test_every_precision_with_integers_has_a_strategy() -> None:
    assert STRATEGIES.keys() == {name for name, traits in PRECISIONS.items() if traits.is_quantized}
    bits = {name: strategy.bits for name, strategy in STRATEGIES.items() if isinstance(strategy, InBlocks)}
    assert bits == {name: traits.bits for name, traits in PRECISIONS.items() if traits.in_blocks}
