"""Calibrated rounding to 4 bits: its error, its moments, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.passes.patterns import constant_array, find_linears
from edgeformer_export.quantize.assignment import assign, tensor_reports
from edgeformer_export.quantize.blocks import Blocks, choose_block_size, dequantize_blocks, quantize_blocks
from edgeformer_export.quantize.calibration import Fed
from edgeformer_export.quantize.moments import Moments, input_moments, lookup_moments, weight_moments
from edgeformer_export.quantize.rounding import BlockRounding, round_for_inputs
from edgeformer_export.sample import SamplePair
from edgeformer_export.weights import digest
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.precision import BLOCK_SIZE
from tests.store import Store

Matrix = NDArray[np.float32]

RANDOM = np.random.default_rng(0)
WIDTHS = [17, 64, 130, 300, 512]
SPECIAL = SpecialTokens()


def correlated(count: int, width: int) -> Matrix:
    """Vectors most of whose variance is in a few directions, as in trained models."""
    directions = RANDOM.normal(size=(width, width)) * np.geomspace(1, 0.02, width)[:, None]
    vectors: Matrix = (RANDOM.normal(size=(count, width)) @ directions).astype(np.float32)
    return vectors


def output_error(weight: Matrix, blocks: Blocks, inputs: Matrix) -> float:
    difference = weight - dequantize_blocks(blocks, 4, weight.shape[1])
    return float(np.square(inputs.astype(np.float64) @ difference.T).sum())


def weights(rows: int, width: int) -> Matrix:
    return (RANDOM.standard_t(5, size=(rows, width)) / 50).astype(np.float32)


def no_moments() -> Mapping[str, Matrix]:
    raise AssertionError("moments were measured")


@pytest.mark.parametrize("width", WIDTHS)
def test_correlated_inputs_lose_half_as_much_as_by_rounding_to_nearest(width: int) -> None:
    weight, inputs = weights(70, width), correlated(2000, width)
    size = choose_block_size(width, 4, 64)
    blocks = round_for_inputs(weight, inputs.T @ inputs, size)
    nearest = quantize_blocks(weight, 4, size)
    assert blocks.packed.shape == nearest.packed.shape
    assert blocks.scales.shape == nearest.scales.shape
    assert output_error(weight, blocks, inputs) < 0.55 * output_error(weight, nearest, inputs)


@pytest.mark.parametrize("width", WIDTHS)
def test_for_white_inputs_it_is_rounding_to_nearest(width: int) -> None:
    weight = weights(40, width)
    size = choose_block_size(width, 4, 64)
    blocks, nearest = round_for_inputs(weight, np.eye(width, dtype=np.float32), size), quantize_blocks(weight, 4, size)
    assert (blocks.packed != nearest.packed).mean() < 0.03  # scales that fit better move a few values to a neighbor
    errors = [np.square(weight - dequantize_blocks(rounded, 4, width)).sum() for rounded in (blocks, nearest)]
    assert 0.98 * errors[1] < errors[0] <= errors[1]


def test_the_unit_of_the_moments_does_not_matter() -> None:
    weight, inputs = weights(30, 64), correlated(500, 64)
    moment = inputs.T @ inputs
    blocks = [round_for_inputs(weight, moment * np.float32(factor), 64) for factor in (1, 2**-40, 2**40)]
    for other in blocks[1:]:
        np.testing.assert_array_equal(other.packed, blocks[0].packed)


def test_rows_are_rounded_alike_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, inputs = weights(100, 96), correlated(500, 96)
    together = round_for_inputs(weight, inputs.T @ inputs, 32)
    monkeypatch.setattr("edgeformer_export.quantize.rounding.VALUES", 96 * 7)
    in_parts = round_for_inputs(weight, inputs.T @ inputs, 32)
    assert (in_parts.packed != together.packed).mean() < 0.01  # sums in another order
    assert output_error(weight, in_parts, inputs) == pytest.approx(output_error(weight, together, inputs), rel=0.01)


@pytest.mark.parametrize("dead", [slice(0, 40), slice(100, 101), slice(0, 128)], ids=["many", "one", "all"])
def test_inputs_that_are_always_zero(dead: slice) -> None:
    weight, inputs = weights(50, 128), correlated(600, 128)
    inputs[:, dead] = 0
    blocks, nearest = round_for_inputs(weight, inputs.T @ inputs, 64), quantize_blocks(weight, 4, 64)
    assert np.isfinite(blocks.scales).all()
    assert output_error(weight, blocks, inputs) <= 0.6 * output_error(weight, nearest, inputs)
    # Their weights are rounded too: other text may have them.
    difference = np.abs(weight - dequantize_blocks(blocks, 4, 128))[:, dead]
    assert difference.max() < np.abs(weight).max() / 3


def test_rows_and_blocks_of_zeros_stay_zero() -> None:
    weight, inputs = weights(50, 128), correlated(600, 128)
    weight[3], weight[7, 64:] = 0, 0
    rounded = dequantize_blocks(round_for_inputs(weight, inputs.T @ inputs, 64), 4, 128)
    assert not rounded[3].any()
    assert np.isfinite(rounded).all()


@pytest.mark.parametrize("count", [1, 5])
def test_few_inputs_are_enough(count: int) -> None:
    weight, inputs, others = weights(50, 128), correlated(count, 128), correlated(2000, 128)
    blocks, nearest = round_for_inputs(weight, inputs.T @ inputs, 128), quantize_blocks(weight, 4, 128)
    assert output_error(weight, blocks, inputs) < 0.5 * output_error(weight, nearest, inputs)
    assert output_error(weight, blocks, others) < 3 * output_error(weight, nearest, others)


def test_each_weight_is_rounded_once_and_only_4_bits_need_moments() -> None:
    weight, inputs = weights(40, 64), correlated(500, 64)
    calls = []

    def moments() -> Mapping[str, Matrix]:
        calls.append("measured")
        return {digest(weight): inputs.T @ inputs}

    rounding = BlockRounding(moments)
    np.testing.assert_array_equal(rounding(weight, 8, 64).packed, quantize_blocks(weight, 8, 64).packed)
    assert not calls
    blocks = rounding(weight, 4, 64)
    assert rounding(np.asfortranarray(weight), 4, 64) is blocks
    assert (blocks.packed != quantize_blocks(weight, 4, 64).packed).any()
    other = weights(40, 64)
    np.testing.assert_array_equal(rounding(other, 4, 64).packed, quantize_blocks(other, 4, 64).packed)
    assert calls == ["measured"]


def test_moments_are_sums_of_products() -> None:
    moments, vectors = Moments(), RANDOM.normal(size=(3000, 12)).astype(np.float32)
    for start in range(0, 3000, 250):
        moments.observe(vectors[start : start + 250].reshape(50, 5, 12))
    moments.flush()
    np.testing.assert_allclose(moments.total, vectors.astype(np.float64).T @ vectors, rtol=1e-4, atol=1e-2)


class InPlace(nn.Module):
    """Two lookups, one of which is modified in place, and a table that is not an ``nn.Embedding``."""

    target_vocab_size = 30

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.source, self.target = nn.Embedding(30, 8), nn.Embedding(30, 8)
        self.unused = nn.Embedding(30, 8)
        self.bare = nn.Parameter(torch.randn(30, 8))
        self.projection = nn.Linear(8, 30, bias=False)
        self.projection.weight = self.target.weight

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        present = torch.arange(source.shape[1]) < source_length[:, None]
        encoded = (self.source(source) * present[:, :, None]).sum(dim=1)
        x = self.target(target)
        x += encoded[:, None] + nn.functional.embedding(target, self.bare)
        logits: Tensor = self.projection(x.tanh())
        return logits


@pytest.mark.parametrize("modes", [lambda model: model, lambda model: model.requires_grad_(False)])
def test_lookups_have_the_moments_of_their_gradients(modes: Callable[[nn.Module], nn.Module]) -> None:
    model, pair = InPlace(), ([5, 6, 7, 3], [8, 9, 10])
    moments = lookup_moments(modes(model), [pair], SPECIAL)  # type: ignore[arg-type]  # has all that is needed
    assert moments.keys() == {"source", "target"}

    model.requires_grad_(True)
    model.projection.weight = nn.Parameter(model.target.weight.detach().clone())
    fed, wanted = [SPECIAL.bos, *pair[1]], [*pair[1], SPECIAL.eos]
    logits = model(torch.tensor([pair[0]]), torch.tensor([4]), torch.tensor([fed]))
    nn.functional.cross_entropy(logits[0], torch.tensor(wanted), reduction="sum").backward()  # type: ignore[no-untyped-call]
    for name, table in (("source", model.source), ("target", model.target)):
        gradient = table.weight.grad
        assert gradient is not None
        # No token occurs twice, so each row has the gradient of one lookup.
        np.testing.assert_allclose(moments[name], (gradient.T @ gradient).numpy(), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def model_graphs(store: Store) -> ModelGraphs:
    return store.model_graphs(steps=100)


def fed(graphs: ModelGraphs, pairs: Sequence[SamplePair]) -> Fed:
    """The optimized graphs of a model, and some of its text."""
    fed_pairs = [(pair.source, pair.target) for pair in pairs]
    return Fed(graphs.optimized("int4").graphs, graphs.traced.table, fed_pairs, graphs.special)


def moments_of(graphs: ModelGraphs, count: int) -> dict[str, Matrix]:
    return weight_moments(graphs.model, graphs.optimized("int4").layers, fed(graphs, graphs.pairs[:count]))


def test_products_have_the_moments_of_their_inputs_without_padding(model_graphs: ModelGraphs) -> None:
    """Sentences that run alone need no padding."""
    graphs, pairs = model_graphs.optimized("int4").graphs, model_graphs.pairs[:3]
    of_each = [input_moments(fed(model_graphs, [pair])) for pair in pairs]
    together = input_moments(fed(model_graphs, pairs))
    assert len({len(pair.target) for pair in pairs}) > 1
    assert together.keys() == {str(linear.output.name) for linear in find_linears(graphs[DECODER_FILE].graph)}
    for name, moment in together.items():
        expected = np.sum([moments[name] for moments in of_each], axis=0)
        np.testing.assert_allclose(moment, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("count", [1, 60])
def test_products_of_a_model_lose_less_and_every_run_gives_the_same_bits(model_graphs: ModelGraphs, count: int) -> None:
    moments, again = moments_of(model_graphs, count), moments_of(model_graphs, count)
    optimized = model_graphs.optimized("int4")
    inputs = input_moments(fed(model_graphs, model_graphs.pairs[60:]))
    assert {digest(layer.rows) for layer in optimized.layers if layer.uses[0].file == DECODER_FILE} <= moments.keys()
    ratios = []
    for linear in find_linears(optimized.graphs[DECODER_FILE].graph):
        weight = np.ascontiguousarray(linear.weight.T)
        size = choose_block_size(weight.shape[1], 4, BLOCK_SIZE)
        blocks, same = (BlockRounding({**known}.copy)(weight, 4, size) for known in (moments, again))
        np.testing.assert_array_equal(blocks.packed, same.packed)
        np.testing.assert_array_equal(blocks.scales, same.scales)
        differences = [
            weight - dequantize_blocks(rounded, 4, weight.shape[1])
            for rounded in (blocks, quantize_blocks(weight, 4, size))
        ]
        calibrated, nearest = (
            float(np.sum((difference @ inputs[str(linear.output.name)]) * difference)) for difference in differences
        )
        ratios.append(calibrated / nearest)
    assert np.mean(ratios) < (0.6 if count > 1 else 1.0)


def test_graphs_and_report_have_the_calibrated_weights(model_graphs: ModelGraphs) -> None:
    layers = model_graphs.optimized("int4").layers
    assigned = assign(layers, "int4")
    graphs, _, _ = model_graphs.quantized("int4", assigned)
    (table,) = [layer for layer in layers if len(layer.uses) > 1]
    blocks = model_graphs.rounding(table.rows, 4, choose_block_size(table.rows.shape[1], 4, BLOCK_SIZE))
    assert (blocks.packed != quantize_blocks(table.rows, 4, blocks.block_size).packed).any()
    readers = [
        node
        for file in (ENCODER_FILE, DECODER_FILE)
        for node in graphs[file].graph
        if node.op_type == "GatherBlockQuantized" or node.attributes.get_int("N", 0) == len(table.rows)
    ]
    assert len(readers) == 3
    for node in readers:
        packed = constant_array(node.inputs[0 if node.op_type == "GatherBlockQuantized" else 1])
        np.testing.assert_array_equal(packed.reshape(blocks.packed.shape), blocks.packed)
    (report,) = [
        report for report in tensor_reports(layers, assigned, model_graphs.rounding) if report.name == table.name
    ]
    error = table.rows - dequantize_blocks(blocks, 4, table.rows.shape[1])
    expected = 10 * np.log10(np.square(table.rows).sum() / np.square(error).sum())
    assert report.snr_db == pytest.approx(expected, abs=0.01)


def test_8_bits_need_no_moments(model_graphs: ModelGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_graphs, "rounding", BlockRounding(no_moments))
    layers = model_graphs.optimized("int8").layers
    _, _, changed = model_graphs.quantized("int8", assign(layers, "int8"))
    assert changed
