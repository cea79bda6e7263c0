"""Batches of sentences of similar length, limited in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgeformer_runtime.search.session import IntArray, StepSession

MAX_ROWS = 128
"""Maximum number of rows in a step (sentences times beams): more rows take more memory, mostly for logits, but save no
time."""


def length_sorted_batches(lengths: Sequence[int], beam_size: int, max_batch_tokens: int) -> Iterator[list[int]]:
    """Group sentences into batches, longest first, limited to a number of tokens and to :data:`MAX_ROWS` rows.

    A sentence that exceeds a limit by itself forms its own batch. Sentences of equal length keep their order.

    Args:
        lengths: source length of each sentence, in tokens.
        beam_size: decoder rows per sentence.
        max_batch_tokens: maximum batch size in tokens: ``beam_size * sentences * longest``.

    Yields:
        Indices of the sentences in each batch.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        tokens = beam_size * max(1, lengths[order[start]])
        size = max(1, min(max_batch_tokens // tokens, MAX_ROWS // beam_size))
        yield order[start : start + size]
        start += size


def single_row_batches(session: StepSession, lengths: Sequence[int], max_batch_tokens: int) -> Iterator[list[int]]:
    """Group sentences with one decoder row each, so that no result depends on the others in the batch.

    Args:
        session: the model; see :attr:`StepSession.row_multiple`.
        lengths: length of each sentence, in tokens.
        max_batch_tokens: maximum batch size in tokens.

    Yields:
        Indices of the sentences in each batch.
    """
    if session.row_multiple > 1:
        yield from ([index] for index in range(len(lengths)))
    else:
        yield from length_sorted_batches(lengths, 1, max_batch_tokens)


def pad(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[IntArray, IntArray]:
    """Pad token ids at the end.

    Returns:
        Ids ``(N, S)`` and true lengths ``(N,)``, both int64.
    """
    length = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
    padded = np.full((len(sequences), int(length.max(initial=0))), pad_id, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return padded, length
