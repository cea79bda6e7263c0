"""Teacher forcing: feed given target tokens to a decoder instead of the tokens it would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.decoding.session import AttentiveState, DecoderState, FloatArray, IntArray

Pair = tuple[Sequence[int], Sequence[int]]
"""Source ids, end token included, and target ids without the start token."""


class ForcedBatch(NamedTuple):
    """Sources to encode and target tokens to feed; all int64."""

    source: IntArray
    """Source ids padded at the end, ``(N, S)``."""
    source_length: IntArray
    """True source lengths, ``(N,)``."""
    target: IntArray
    """Tokens to feed, start token first, padded at the end, ``(N, T)``."""
    target_length: IntArray
    """Number of tokens to feed, padding excluded, ``(N,)``."""


def forced_batch(pairs: Sequence[Pair], special: SpecialTokens) -> ForcedBatch:
    """Pad pairs of source and target, and prepend the start token to each target."""
    source, source_length = pad([source for source, _ in pairs], special.pad)
    target, target_length = pad([[special.bos, *target] for _, target in pairs], special.pad)
    return ForcedBatch(source, source_length, target, target_length)


def columns(target: IntArray) -> Iterator[IntArray]:
    """The tokens of each step, ``(R,)``, from targets ``(R, T)``."""
    return iter(np.ascontiguousarray(target.T))


def forced_steps(state: DecoderState, target: IntArray) -> Iterator[FloatArray]:
    """Feed targets ``(R, T)`` token by token.

    Args:
        state: a state before its first step; advanced in place.
        target: tokens to feed, start token first, int64.

    Yields:
        Logits after each token, ``(R, V)``, float32; the next step overwrites them.
    """
    for token in columns(target):
        yield state.step(token)


def forced_attention(state: AttentiveState, target: IntArray) -> FloatArray:
    """Feed targets ``(R, T)`` token by token and collect the attention of each step.

    Args:
        state: a state before its first step; advanced in place.
        target: tokens to feed, start token first, int64; T is at least 1.

    Returns:
        Weights of the source positions, ``(R, T, S)``, float32.

    Raises:
        BundleError: the model has no attention weights.
    """
    return np.stack([state.attend(token) for token in columns(target)], axis=1)
