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
from edgeformer_export.quantize.blocks import Int4Blocks, choose_block_size, quantize_blocks
from edgeformer_export.quantize.calibration import CalibrationData
from edgeformer_export.quantize.moments import Moments, input_moments, lookup_moments, weight_moments
from edgeformer_export.quantize.rounding import round_for_inputs
from edgeformer_export.quantize.strategies import make_table
from edgeformer_export.sample import SamplePair
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import DECODER_FILE
from tests.store import Store

Matrix = NDArray[np.float32]

RANDOM = np.random.default_rng(0)
WIDTHS = [17, 130, 512]
SPECIAL = SpecialTokens()


def correlated(count: int, width: int) -> Matrix:
    """Vectors most of whose variance is in a few directions, as in trained models."""
    directions = RANDOM.normal(size=(width, width)) * np.geomspace(1, 0.02, width)[:, None]
    vectors: Matrix = (RANDOM.normal(size=(count, width)) @ directions).astype(np.float32)
    return vectors


def output_error(weight: Matrix, blocks: Int4Blocks, inputs: Matrix) -> float:
    difference = weight - blocks.restored()
    return float(np.square(inputs.astype(np.float64) @ difference.T).sum())


def weights(rows: int, width: int) -> Matrix:
    return (RANDOM.standard_t(5, size=(rows, width)) / 50).astype(np.float32)


@pytest.mark.parametrize("width", WIDTHS)
def test_correlated_inputs_lose_half_as_much_as_by_rounding_to_nearest(width: int) -> None:
    weight, inputs = weights(70, width), correlated(2000, width)
    size = choose_block_size(width, 64)
    blocks = round_for_inputs(weight, inputs.T @ inputs, size)
    nearest = quantize_blocks(weight, size)
    assert blocks.packed.shape == nearest.packed.shape
    assert blocks.scales.shape == nearest.scales.shape
    assert output_error(weight, blocks, inputs) < 0.55 * output_error(weight, nearest, inputs)


@pytest.mark.parametrize("width", WIDTHS)
def test_for_white_inputs_it_is_rounding_to_nearest(width: int) -> None:
    weight = weights(40, width)
    size = choose_block_size(width, 64)
    blocks, nearest = round_for_inputs(weight, np.eye(width, dtype=np.float32), size), quantize_blocks(weight, size)
    assert (blocks.packed != nearest.packed).mean() < 0.03  # scales that fit better move a few values to a neighbor
    errors = [np.square(weight - rounded.restored()).sum() for rounded in (blocks, nearest)]
    assert 0.98 * errors[1] < errors[0] <= errors[1]


def test_the_unit_of_the_moments_does_not_matter() -> None:
    weight, inputs = weights(30, 64), correlated(500, 64)
    moment = inputs.T @ inputs
    blocks = [round_for_inputs(weight, moment * np.float32(factor), 64) for factor in (1, 2**-40, 2**40)]
    for other in blocks[1:]:
        np.testing.assert_array_equal(other.packed, blocks[0].packed)


@pytest.mark.parametrize("dead", [slice(0, 40), slice(100, 101), slice(0, 128)], ids=["many", "one", "all"])
def test_inputs_that_are_always_zero(dead: slice) -> None:
    weight, inputs = weights(50, 128), correlated(600, 128)
    inputs[:, dead] = 0
    blocks, nearest = round_for_inputs(weight, inputs.T @ inputs, 64), quantize_blocks(weight, 64)
    assert np.isfinite(blocks.scales).all()
    assert output_error(weight, blocks, inputs) <= 0.6 * output_error(weight, nearest, inputs)
    # Their weights are rounded too: other text may have them.
    difference = np.abs(weight - blocks.restored())[:, dead]
    assert difference.max() < np.abs(weight).max() / 3


def test_rows_and_blocks_of_zeros_stay_zero() -> None:
    weight, inputs = weights(50, 128), correlated(600, 128)
    weight[3], weight[7, 64:] = 0, 0
    rounded = round_for_inputs(weight, inputs.T @ inputs, 64).restored()
    assert not rounded[3].any()
    assert np.isfinite(rounded).all()


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


def fed(graphs: ModelGraphs, pairs: Sequence[SamplePair]) -> CalibrationData:
    """The optimized graphs of a model, and some of its text."""
    fed_pairs = [(pair.source, pair.target) for pair in pairs]
    return CalibrationData(graphs.optimized("int4").graphs, graphs.traced.table, fed_pairs, graphs.special)


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


def test_products_of_a_model_lose_less_and_every_run_gives_the_same_bits(model_graphs: ModelGraphs) -> None:
    layers = model_graphs.optimized("int4").layers
    inputs = input_moments(fed(model_graphs, model_graphs.pairs[60:]))
    calibrated, again = (make_table(layers, "int4", lambda: moments_of(model_graphs, 20)) for _ in range(2))
    ratios = []
    for weight, same in zip(calibrated, again, strict=True):
        if weight.precision == "int4":
            np.testing.assert_array_equal(weight.integers.packed, same.integers.packed)
            np.testing.assert_array_equal(weight.integers.scales, same.integers.scales)
        for reader in weight.readers:
            if reader.file == DECODER_FILE and reader.name in inputs:
                nearest = quantize_blocks(reader.rows, choose_block_size(reader.rows.shape[1]))
                errors = [reader.rows - rounded.restored() for rounded in (weight.integers, nearest)]
                ours, theirs = (float(np.sum((error @ inputs[reader.name]) * error)) for error in errors)
                ratios.append(ours / theirs)
    assert len(ratios) == len(inputs)
    assert np.mean(ratios) < 0.7


def test_graphs_and_report_are_written_from_the_table(model_graphs: ModelGraphs) -> None:
    quantized = model_graphs.quantized("int4")
    (table,) = [weight for weight in quantized.table if len(weight.readers) == 3]
    rows, blocks = table.layer.rows, table.integers
    assert (blocks.packed != quantize_blocks(rows, blocks.block_size).packed).any()
    readers = [
        node
        for graph in quantized.graphs.values()
        for node in graph.graph
        if node.op_type == "GatherBlockQuantized" or node.attributes.get_int("N", 0) == len(rows)
    ]
    assert len(readers) == 3
    for node in readers:
        packed = constant_array(node.inputs[0 if node.op_type == "GatherBlockQuantized" else 1])
        np.testing.assert_array_equal(packed.reshape(blocks.packed.shape), blocks.packed)
    expected = 10 * np.log10(np.square(rows).sum() / np.square(rows - blocks.restored()).sum())
    assert table.report.snr_db == pytest.approx(expected, abs=0.01)
    assert table.report.bytes == blocks.packed.nbytes + blocks.scales.nbytes


def test_8_bits_need_no_moments(model_graphs: ModelGraphs) -> None:
    def measured() -> Mapping[str, Matrix]:
        raise AssertionError("moments were measured")

    assert {row.precision for row in make_table(model_graphs.optimized("int8").layers, "int8", measured)} == {"int8"}
