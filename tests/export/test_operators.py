"""Every operator of a Transformer's graphs, as some that are there once and some for each layer: nothing creeps in."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from tests.store import Store

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8", "int4")
DEPTHS = {(2, 2): "post_norm", (3, 1): "uneven_depth"}
"""Layers of the encoder and of the decoder."""

Operators = Counter[str]


class Graph(NamedTuple):
    once: Operators
    encoder_layer: Operators
    decoder_layer: Operators


# x - mean, then the root mean square, then beta.
NORM = Counter(ReduceMean=1, Sub=1, SimplifiedLayerNormalization=1, Add=1)
BIASED = Counter(MatMul=1, Add=1)
ROUNDED = Counter(MatMulIntegerToFloat=1)
RESIDUAL = Counter(Add=1)


def times(count: int, operators: Operators) -> Operators:
    return Counter({name: count * number for name, number in operators.items()})


# Positions 0 … S - 1 against the lengths, cast to int32; the position table's first S rows, added to the embedding; the
# shape (N, S, heads, width) of keys and values.
SOURCE = Counter(Shape=2, Squeeze=1, Range=1, Unsqueeze=1, Less=1, Cast=1) + Counter(Slice=1, Add=1) + Counter(Concat=1)
# The position as (1,), int32, for the caches; its row of the position table, added to the embedding; one axis in
# (R, 1, D) and out again; the shape (N, K, D) of queries.
TARGET = (
    Counter(Cast=1, Reshape=1) + Counter(Gather=1, Add=1) + Counter(Unsqueeze=1, Reshape=1) + Counter(Shape=1, Concat=1)
)
LOOKUP = {
    "fp32": Counter(Gather=1, Mul=1),
    "int8": Counter(Gather=2, Cast=1, Mul=1),  # the row and its scale, in which sqrt(D) is
    "int4": Counter(GatherBlockQuantized=1, Mul=1),
}
# Heads of the keys and of the values that the encoder makes for each layer of the decoder.
APART = Counter(Reshape=2, Transpose=2)
# Queries of a sentence's K beams side by side, and apart again.
BEAMS = Counter(Reshape=2)
CACHE = Counter(Split=1, DecoderMaskedMultiHeadAttention=1)
CROSS = Counter(MultiHeadAttention=1) + BEAMS

INT8_ENCODER_LAYER = (
    # The input, for query, key and value; the context; the input and, without its Relu, the inner layer of the
    # feed-forward sublayer.
    Counter(QuantizeLinear=4) + times(6, ROUNDED) + Counter(MultiHeadAttention=1) + times(2, RESIDUAL + NORM)
)
INT8_CROSS = times(2, ROUNDED) + APART

EXPECTED: dict[tuple[str, Precision], Graph] = {
    (ENCODER_FILE, "fp32"): Graph(
        SOURCE + LOOKUP["fp32"],
        times(6, BIASED) + Counter(MultiHeadAttention=1, Relu=1) + times(2, RESIDUAL + NORM),
        times(2, BIASED) + APART,
    ),
    (DECODER_FILE, "fp32"): Graph(
        TARGET + LOOKUP["fp32"] + Counter(Gemm=1),
        Counter(),
        times(6, BIASED) + CACHE + CROSS + Counter(Relu=1) + times(3, RESIDUAL + NORM),
    ),
    # Its last norm is rounded once, for the keys and values of all layers.
    (ENCODER_FILE, "int8"): Graph(SOURCE + LOOKUP["int8"] + Counter(QuantizeLinear=1), INT8_ENCODER_LAYER, INT8_CROSS),
    (DECODER_FILE, "int8"): Graph(
        TARGET + LOOKUP["int8"] + Counter(QuantizeLinear=1, QGemm=1),
        Counter(),
        Counter(QuantizeLinear=6) + times(6, ROUNDED) + CACHE + CROSS + times(3, RESIDUAL + NORM),
    ),
    (ENCODER_FILE, "int4"): Graph(SOURCE + LOOKUP["int4"] + Counter(QuantizeLinear=1), INT8_ENCODER_LAYER, INT8_CROSS),
    # Sums, norms and biases are parts of other operators.
    (DECODER_FILE, "int4"): Graph(
        TARGET + LOOKUP["int4"] + Counter(MatMulNBits=1),
        Counter(),
        Counter(MatMulNBits=6, SkipLayerNormalization=3, Relu=1) + CACHE + CROSS,
    ),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(depth, marks=[pytest.mark.slow] if depth != (2, 2) else [], id="{}-{}".format(*depth))
        for depth in DEPTHS
    ],
)
def found(request: pytest.FixtureRequest, store: Store) -> tuple[int, int, dict[tuple[str, Precision], Operators]]:
    """Layers, and operators by file and precision."""
    encoder_layers, decoder_layers = request.param
    variant = DEPTHS[request.param]
    bundles = {precision: open_bundle(store.bundle(variant, precision)) for precision in PRECISIONS}
    operators = {
        (file, precision): Counter({name.rpartition(".")[2]: count for name, count in counts.items()})
        for precision, bundle in bundles.items()
        for file, counts in bundle.manifest.report.operators.items()
    }
    return encoder_layers, decoder_layers, operators


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("file", [ENCODER_FILE, DECODER_FILE])
def test_a_graph_has_these_operators_and_no_other(
    found: tuple[int, int, dict[tuple[str, Precision], Operators]], file: str, precision: Precision
) -> None:
    encoder_layers, decoder_layers, operators = found
    graph = EXPECTED[file, precision]
    expected = graph.once + times(encoder_layers, graph.encoder_layer) + times(decoder_layers, graph.decoder_layer)
    surplus, lacking = operators[file, precision] - expected, expected - operators[file, precision]
    assert (dict(surplus), dict(lacking)) == ({}, {})
