"""Plan of a bundle: what the kernels of ``edgeformer-kernels`` compute, and where in ``weights.bin`` its weights are.

A plan says of every layer where its weights are. The kernels get it as numbers, in the order of the fields below, so
that they need to parse nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from edgeformer_runtime.limits import Number

Offset = Number
"""Offset of a tensor in the file of weights, in bytes; a missing one is ``None``, and -1 among the numbers."""
VERSION = 1
Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"]


class LinearPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """``y = x @ W.T + b`` in integers: some outputs of a stored product."""

    columns: Number
    """Outputs of the stored product."""
    first: Number
    """The first of those that are meant."""
    count: Number
    """Their number."""
    by_rows: bool
    """Whether the weight is stored as ``(columns, inputs)`` rather than ``(inputs, columns)``."""
    weight: Offset
    """int8."""
    scale: Offset
    """float32, ``(columns,)``."""
    bias: Offset | None
    """float32, ``(columns,)``."""
    input_scale: float
    """Inputs are divided by it,"""
    input_zero: Number
    """this is added,"""
    input_most: Number
    """and the rounded sum is clipped to 0 … this."""


class NormPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A norm of the stream."""

    weight: Offset | None
    """float32, ``(D,)``; ``None`` if there is no norm."""
    bias: Offset | None
    """float32, ``(D,)``."""


class EmbeddingPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Tokens and positions."""

    rows: Number
    """Entries of the vocabulary."""
    table: Offset
    """int8, ``(rows, D)``."""
    scale: Offset
    """float32, ``(rows,)``, with the embeddings' factor."""
    positions: Number
    """Number of positions that a sequence may have."""
    position: Offset | None
    """float32, ``(positions, D)``."""
    norm: NormPlan


class FeedForwardPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Two products with an activation between them."""

    norm: NormPlan
    inner: tuple[LinearPlan, ...]
    """One; if gated, the gate and what it multiplies."""
    outer: LinearPlan


class EncoderLayerPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Self-attention and feed-forward."""

    norm: NormPlan
    query_key_value: tuple[LinearPlan, LinearPlan, LinearPlan]
    output: LinearPlan
    feed_forward: FeedForwardPlan


class DecoderLayerPlan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Self-attention or SSRU, cross-attention and feed-forward of a decoder layer."""

    norm: NormPlan
    target: tuple[LinearPlan, ...]
    """Queries, keys and values; or candidate and forget gate of a recurrence."""
    output: LinearPlan | None
    """Of self-attention; a recurrence has none, which the numbers leave out."""
    memory: tuple[LinearPlan, LinearPlan]
    """Keys and values of the encoder's output."""
    cross_norm: NormPlan
    cross_query: LinearPlan
    cross_output: LinearPlan
    feed_forward: FeedForwardPlan


class Plan(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A Transformer in integers."""

    version: Number
    recurrent: bool
    """Whether the decoder has a recurrence (SSRU) instead of self-attention."""
    width: Number
    """D."""
    heads: Number
    """H."""
    key_width: Number
    """E."""
    value_width: Number
    """F."""
    encoder_inner: Number
    """Width of the encoder's feed-forward layers."""
    decoder_inner: Number
    """The same in the decoder."""
    norm_first: bool
    """Pre-norm."""
    norm_centers: bool
    """LayerNorm rather than RMSNorm."""
    gated: bool
    """Whether feed-forward layers are gated."""
    activation: Activation
    epsilon: float
    """Added to the variance of norms."""
    encoder_scale: float
    """Factor of the scores of self-attention in the encoder."""
    decoder_scale: float
    """The same in the decoder."""
    cross_scale: float
    """The same of cross-attention."""
    output_scale: float
    """Factor of what is projected to logits."""
    source: EmbeddingPlan
    target: EmbeddingPlan
    encoder: tuple[EncoderLayerPlan, ...]
    encoder_norm: NormPlan
    decoder: tuple[DecoderLayerPlan, ...]
    decoder_norm: NormPlan
    projection: LinearPlan

    def numbers(self) -> list[float]:
        """Write the plan as numbers: fields in order; layers after their number; -1 for a missing tensor."""
        return list(_numbers(self))


_COUNTED = ("encoder", "decoder")


def _numbers(part: msgspec.Struct) -> Iterator[float]:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if name in _COUNTED:
            yield len(value)
        if isinstance(value, tuple):
            for item in value:
                yield from _numbers(item)
        elif isinstance(value, msgspec.Struct):
            yield from _numbers(value)
        elif isinstance(value, str):
            yield get_args(Activation).index(value)
        elif name != "output" or value is not None:
            yield -1.0 if value is None else float(value)
