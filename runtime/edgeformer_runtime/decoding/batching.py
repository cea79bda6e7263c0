"""Batches of similar length under a bound of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgeformer_runtime.decoding.session import IntArray

MAX_ROWS = 128
"""Rows of a step, sentences times beams: more take more memory, for logits above all, and gain no time."""


def length_sorted_batches(lengths: Sequence[int], beam_size: int, max_batch_tokens: int) -> Iterator[list[int]]:
    """Indices of all sentences, longest first, in batches whose rows times longest source stay under the bound, and
    whose rows under :data:`MAX_ROWS`.

    A sentence that exceeds a bound by itself makes a batch of its own. The order of equal lengths is kept.

    Args:
        lengths: source length of each sentence, in tokens.
        beam_size: decoder rows per sentence.
        max_batch_tokens: bound of ``beam_size * sentences * longest``.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        tokens = beam_size * max(1, lengths[order[start]])
        size = max(1, min(max_batch_tokens // tokens, MAX_ROWS // beam_size))
        yield order[start : start + size]
        start += size


def pad(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[IntArray, IntArray]:
    """Token ids ``(N, S)`` padded at the end, and the true lengths ``(N,)``, both int64."""
    length = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    padded = np.full((len(sequences), int(length.max(initial=0))), pad_id, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return padded, length
