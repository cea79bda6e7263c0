"""Weights in blocks of 4 bits: rounding, products, look-ups, and what is stored."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from edgeformer_export.passes.patterns import constant_array, find_linears, find_lookups
from edgeformer_export.passes.pipeline import weight_bytes
from edgeformer_export.quantize.blocks import choose_block_size, quantize_blocks
from edgeformer_export.quantize.strategies import STRATEGIES
from edgeformer_runtime.contract import ENCODER_FILE, SOURCE, SOURCE_LENGTH
from edgeformer_runtime.precision import PRECISIONS
from tests.graphs import linear_model, model_of, quantized, run, run_all
from tests.store import Store
from tests.variants import traced_variants

RANDOM = np.random.default_rng(0)


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


@pytest.mark.parametrize("width", [16, 17, 96, 300, 512])
@pytest.mark.parametrize(("op", "biased"), [("MatMul", True), ("MatMul", False), ("Gemm", True), ("Gemm", False)])
def test_a_product_is_that_of_the_rounded_weight(width: int, op: str, biased: bool) -> None:
    weight = RANDOM.normal(size=(width, 33)).astype(np.float32)
    bias = RANDOM.normal(size=33).astype(np.float32) if biased else None
    # Blocks of very different sizes: a scale for the whole row would lose the small ones.
    sizes = 10.0 ** RANDOM.integers(-3, 2, (32, width // 16 + 1)).repeat(16, axis=1)[:, :width]
    x = (RANDOM.normal(size=(32, width)) * sizes).astype(np.float32)
    model = quantized(linear_model(weight, bias, op), "int4")
    assert [node.op_type for node in model.graph] == ["MatMulNBits"]

    size = choose_block_size(width)
    rounded = quantize_blocks(weight.T, size).restored()
    assert weight_bytes(model) == 33 * -(-width // size) * (size // 2 + 4) + (0 if bias is None else bias.nbytes)

    expected = x.astype(np.float64) @ rounded.T + (0 if bias is None else bias)
    error = np.abs(run(model, x=x) - expected)
    # Sums in float32 add a little to what the rounding of x may do.
    assert (error <= rounding_bound(x, rounded, size) + 1e-6 * (np.abs(x) @ np.abs(rounded.T) + 1)).all()


def test_an_even_number_of_rows_gives_exactly_the_same_in_any_company() -> None:
    model = quantized(linear_model(RANDOM.normal(size=(512, 96)).astype(np.float32), None, "MatMul"), "int4")
    x = RANDOM.normal(size=(48, 512)).astype(np.float32)
    together = run(model, x=x)
    for begin in (0, 1, 10):
        for rows in (2, 4, 6, 10, 16, 34):
            np.testing.assert_array_equal(run(model, x=x[begin : begin + rows]), together[begin : begin + rows])


@pytest.mark.parametrize("width", [16, 17, 64, 300, 512])
def test_a_look_up_reads_exactly_the_rounded_rows(width: int) -> None:
    table = RANDOM.normal(size=(50, width)).astype(np.float32)
    model = quantized(lookup_model(table), "int4")
    assert weight_bytes(model) < (0.4 if width == 17 else 0.2) * table.nbytes
    ids = RANDOM.integers(0, 50, (3, 7))
    rounded = quantize_blocks(table, choose_block_size(width)).restored()
    np.testing.assert_array_equal(run(model, ids=ids), rounded[ids])


@pytest.mark.parametrize("block_size", [16, 32, 128, 256])
def test_4_bits_are_rounded_with_nearly_the_least_squared_error(block_size: int) -> None:
    matrix = (RANDOM.standard_t(5, size=(100, 1024)) / 50).astype(np.float32)
    matrix[5, : 2 * block_size] = 0
    rounded = quantize_blocks(matrix, block_size).restored()
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
    ("width", "expected"),
    # 48 and 1000: fewer scales, and more values than the row has.
    [(512, 256), (256, 256), (192, 64), (96, 32), (48, 64), (16, 16), (1000, 256)],
)
def test_the_block_size_takes_fewest_bytes(width: int, expected: int) -> None:
    assert choose_block_size(width) == expected


@pytest.mark.parametrize("variant", traced_variants(["post_norm", "untied_silu", "lstm_mlp"]))
def test_position_tables_stay_and_all_else_is_replaced(store: Store, variant: str) -> None:
    graphs = store.traced(variant).graphs
    for model in graphs.values():
        linears, lookups = len(list(find_linears(model.graph))), len(list(find_lookups(model.graph)))
        blocks = quantized(model, "int4")
        assert not [*find_linears(blocks.graph), *find_lookups(blocks.graph)]
        operators = Counter(node.op_type for node in blocks.graph)
        assert (operators["MatMulNBits"], operators["GatherBlockQuantized"]) == (linears, lookups)
        kept = [value for name, value in blocks.graph.initializers.items() if name.endswith("positions")]
        assert [value.dtype for value in kept] == [ir.DataType.FLOAT] * (variant != "lstm_mlp")


def test_a_whole_graph_computes_what_rounded_weights_give(store: Store) -> None:
    model = store.traced("post_norm").graphs[ENCODER_FILE]
    blocks = quantized(ir.from_proto(ir.to_proto(model)), "int4")
    # The same graph in fp32, with rounded weights.
    products = [(linear.nodes[0].inputs[1], True) for linear in find_linears(model.graph)]
    for value, transposed in [*products, *((node.inputs[0], False) for node in find_lookups(model.graph))]:
        weight = constant_array(value).T if transposed else constant_array(value)
        rounded = quantize_blocks(weight, choose_block_size(weight.shape[1])).restored()
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
    assert [node.op_type for node in quantized(model, "int4").graph] == ["MatMul"]


def test_every_precision_with_integers_has_a_strategy() -> None:
    assert STRATEGIES.keys() == {name for name, traits in PRECISIONS.items() if traits.is_quantized}
