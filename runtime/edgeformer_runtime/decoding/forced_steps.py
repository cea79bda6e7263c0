"""Teacher forcing: feed given target tokens to a decoder instead of the tokens it would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.decoding.session import AttentiveState, DecoderState, FloatArray, IntArray

Pair = tuple[Sequence[int], Sequence[int]]
"""Source ids, end token included, and target ids without what every target begins with."""


class ForcedBatch(NamedTuple):
    """Sources to encode and target tokens to feed; all int64."""

    source: IntArray
    """Source ids padded at the end, ``(N, S)``."""
    source_length: IntArray
    """True source lengths, ``(N,)``."""
    target: IntArray
    """Tokens to feed, padded at the end, ``(N, T)``: those that every target begins with, then the target."""
    target_length: IntArray
    """Number of tokens to feed, padding excluded, ``(N,)``."""


def forced_batch(pairs: Sequence[Pair], special: SpecialTokens) -> ForcedBatch:
    """Pad pairs of source and target, and prepend what every target begins with to each target."""
    source, source_length = pad([source for source, _ in pairs], special.pad)
    # Padding belongs to the vocabulary of its side; no true token depends on that of a target.
    target, target_length = pad([[*special.start, *target] for _, target in pairs], special.eos)
    return ForcedBatch(source, source_length, target, target_length)


def columns(target: IntArray) -> Iterator[IntArray]:
    """The tokens of each step, ``(R,)``, from targets ``(R, T)``."""
    return iter(np.ascontiguousarray(target.T))


def forced_steps(state: DecoderState, target: IntArray) -> Iterator[FloatArray]:
    """Feed targets ``(R, T)`` token by token.

    Args:
        state: a state before its first step; advanced in place.
        target: tokens to feed, those that every target begins with included, int64.

    Yields:
        Logits after each token, ``(R, V)``, float32; the next step overwrites them.
    """
    for token in columns(target):
        yield state.step(token)


def forced_attention(state: AttentiveState, target: IntArray) -> FloatArray:
    """Feed targets ``(R, T)`` token by token and collect the attention of each step.

    Args:
        state: a state before its first step; advanced in place.
        target: tokens to feed, those that every target begins with included, int64; T is at least 1.

    Returns:
        Weights of the source positions, ``(R, T, S)``, float32.

    Raises:
        BundleError: the model has no attention weights.
    """
    return np.stack([state.attend(token) for token in columns(target)], axis=1)
