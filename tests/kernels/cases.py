"""Models with random weights, and sentences to translate, for ``driver.cpp``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.plan import (
    VERSION,
    Activation,
    DecoderLayerPlan,
    EmbeddingPlan,
    EncoderLayerPlan,
    FeedForwardPlan,
    LinearPlan,
    NormPlan,
    Plan,
)

EOS = 2


@dataclass(frozen=True)
class Shape:
    """What distinguishes models."""

    width: int = 32
    heads: int = 4
    key_width: int = 8
    value_width: int = 8
    inner: int = 64
    layers: int = 2
    rows: int = 130
    recurrent: bool = False
    norm_first: bool = False
    norm_centers: bool = True
    gated: bool = False
    activation: Activation = "relu"
    has_positions: bool = True
    has_bias: bool = True


SHAPES = {
    "post_norm": Shape(),
    "pre_norm": Shape(norm_first=True, activation="gelu", key_width=16, value_width=16, layers=1, rows=64),
    "free_widths": Shape(key_width=6, value_width=10, activation="silu", has_bias=False, rows=201),
    "gated": Shape(norm_first=True, norm_centers=False, gated=True, activation="gelu_tanh", has_positions=False),
    "ssru": Shape(recurrent=True, activation="gelu_sigmoid"),
    "wide": Shape(width=80, heads=2, key_width=40, value_width=40, inner=144, layers=1, rows=333, recurrent=True),
}

TINY = {
    "transformer": Shape(width=16, heads=2, key_width=3, value_width=5, inner=16, layers=1, rows=20, gated=True),
    "ssru": Shape(width=16, heads=1, key_width=16, value_width=16, inner=16, layers=1, rows=70, recurrent=True),
}
"""Shapes of models that thousands can be opened of."""


@dataclass
class Model:
    """A plan and its weights."""

    shape: Shape
    random: np.random.Generator
    weights: bytearray = field(default_factory=bytearray)

    def place(self, array: NDArray[Any]) -> int:
        """Write an array at the next cache line, and return where it is."""
        self.weights.extend(b"\0" * (-len(self.weights) % 64))
        offset = len(self.weights)
        self.weights.extend(np.ascontiguousarray(array).tobytes())
        return offset

    def floats(self, size: int, low: float, high: float) -> int:
        """Write random singles."""
        return self.place(self.random.uniform(low, high, size).astype(np.float32))

    def linears(self, inputs: int, *counts: int, by_rows: bool = False) -> tuple[LinearPlan, ...]:
        """Write one product, and return its parts."""
        columns = sum(counts)
        stored: dict[str, Any] = {
            "columns": columns,
            "by_rows": by_rows,
            "weight": self.place(self.random.integers(-128, 128, (inputs, columns), np.int8)),
            "scale": self.floats(columns, 1e-3, 4e-3),
            "bias": self.floats(columns, -0.5, 0.5) if self.shape.has_bias else None,
            "input_scale": float(np.float32(self.random.uniform(0.02, 0.04))),
            "input_zero": int(self.random.integers(0, 256)),
            "input_most": int(self.random.choice([254, 255])),
        }
        firsts = np.cumsum((0, *counts)).tolist()
        return tuple(
            LinearPlan(**stored, first=first, count=count) for first, count in zip(firsts, counts, strict=False)
        )

    def linear(self, inputs: int, outputs: int, *, by_rows: bool = False) -> LinearPlan:
        """Write a product."""
        return self.linears(inputs, outputs, by_rows=by_rows)[0]

    def norm(self, exists: bool = True) -> NormPlan:
        """Write a norm."""
        width = self.shape.width
        return NormPlan(
            weight=self.floats(width, 0.5, 1.5) if exists else None,
            bias=self.floats(width, -0.1, 0.1) if exists and self.shape.norm_centers else None,
        )

    def embedding(self, *, has_norm: bool) -> EmbeddingPlan:
        """Write an embedding."""
        shape = self.shape
        return EmbeddingPlan(
            rows=shape.rows,
            table=self.place(self.random.integers(-128, 128, (shape.rows, shape.width), np.int8)),
            scale=self.floats(shape.rows, 0.01, 0.02),
            positions=64,
            position=self.floats(64 * shape.width, -1, 1) if shape.has_positions else None,
            norm=self.norm(has_norm),
        )

    def feed_forward(self) -> FeedForwardPlan:
        """Write a feed-forward layer."""
        shape = self.shape
        inner = (
            self.linear(shape.width, shape.inner),
            *([self.linear(shape.width, shape.inner)] if shape.gated else ()),
        )
        return FeedForwardPlan(norm=self.norm(), inner=inner, outer=self.linear(shape.inner, shape.width))

    def encoder_layer(self) -> EncoderLayerPlan:
        """Write a layer of the encoder, whose queries, keys and values are parts of one product."""
        shape, keys, values = self.shape, *self._widths()
        query, key, value = self.linears(shape.width, keys, keys, values)
        return EncoderLayerPlan(
            norm=self.norm(),
            query_key_value=(query, key, value),
            output=self.linear(values, shape.width),
            feed_forward=self.feed_forward(),
        )

    def decoder_layer(self) -> DecoderLayerPlan:
        """Write a layer of the decoder, whose queries, keys and values are products of their own."""
        shape, keys, values = self.shape, *self._widths()
        counts = (shape.width, shape.width) if shape.recurrent else (keys, keys, values)
        return DecoderLayerPlan(
            norm=self.norm(),
            target=tuple(self.linear(shape.width, count) for count in counts),
            output=None if shape.recurrent else self.linear(values, shape.width),
            memory=(self.linear(shape.width, keys), self.linear(shape.width, values)),
            cross_norm=self.norm(),
            cross_query=self.linear(shape.width, keys),
            cross_output=self.linear(values, shape.width),
            feed_forward=self.feed_forward(),
        )

    def plan(self) -> Plan:
        """Write all weights, and return the plan."""
        shape = self.shape
        return Plan(
            version=VERSION,
            recurrent=shape.recurrent,
            width=shape.width,
            heads=shape.heads,
            key_width=shape.key_width,
            value_width=shape.value_width,
            encoder_inner=shape.inner,
            decoder_inner=shape.inner,
            norm_first=shape.norm_first,
            norm_centers=shape.norm_centers,
            gated=shape.gated,
            activation=shape.activation,
            epsilon=1e-5,
            encoder_scale=shape.key_width**-0.5,
            decoder_scale=shape.key_width**-0.5,
            cross_scale=shape.key_width**-0.5,
            output_scale=0.5 if shape.gated else 1.0,
            source=self.embedding(has_norm=shape.gated),
            target=self.embedding(has_norm=False),
            encoder=tuple(self.encoder_layer() for _ in range(shape.layers)),
            encoder_norm=self.norm(shape.norm_first),
            decoder=tuple(self.decoder_layer() for _ in range(shape.layers)),
            decoder_norm=self.norm(shape.norm_first),
            projection=self.linear(shape.width, shape.rows, by_rows=True),
        )

    def _widths(self) -> tuple[int, int]:
        return self.shape.heads * self.shape.key_width, self.shape.heads * self.shape.value_width


def make_model(shape: Shape, seed: int = 0) -> tuple[Plan, bytes]:
    """Return a plan and its weights."""
    model = Model(shape, np.random.default_rng(seed))
    plan = model.plan()
    return plan, bytes(model.weights)


def write_case(path: Path, shape: Shape, lengths: Sequence[int] = (5, 1, 17, 33), seed: int = 0) -> Path:
    """Write a model, and sentences of random tokens."""
    plan, weights = make_model(shape, seed)
    return write_plan(path, plan, weights, lengths, seed)


def write_plan(path: Path, plan: Plan, weights: bytes, lengths: Sequence[int], seed: int = 0) -> Path:
    """Write a model and sentences, as ``driver.cpp`` reads them."""
    tokens = np.random.default_rng(seed).integers(4, plan.source.rows, sum(lengths))
    numbers, suppressed = plan.numbers(), [0, plan.target.rows - 1]
    whole = [
        *(plan.source.rows, plan.target.rows, 1, EOS),
        *(len(suppressed), len(lengths), len(tokens), len(numbers), len(weights)),
        *(*suppressed, *lengths, *tokens),
    ]
    path.write_bytes(np.array(whole, "<i8").tobytes() + np.array(numbers, "<f8").tobytes() + weights)
    return path
