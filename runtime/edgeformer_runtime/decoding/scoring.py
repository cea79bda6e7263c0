"""Log-probabilities of given targets, by teacher forcing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.decoding.batching import pad, single_row_batches
from edgeformer_runtime.decoding.forced_steps import Pair, forced_batch, forced_steps
from edgeformer_runtime.decoding.session import StepSession


def score_batches(
    session: StepSession, pairs: Sequence[Pair], max_batch_tokens: int = 4096
) -> Iterator[list[tuple[int, NDArray[np.float64]]]]:
    """Score targets batch by batch. Scores are independent of the other pairs.

    Tokens that are not part of the distribution (``suppress``) have the probability 0, as in a search.

    Args:
        session: the model.
        pairs: source ids, end token included, and the target ids to score, at least one and at most
            :func:`~edgeformer_runtime.decoding.session.longest_target` each; include the end token to score it.
        max_batch_tokens: maximum batch size in tokens, those of the longer side.

    Yields:
        For each pair of a batch, its index and the log-probability of each target token, ``(T,)``, float64.
    """
    lengths = [max(len(source), len(target)) for source, target in pairs]
    for indices in single_row_batches(session, lengths, max_batch_tokens):
        scores = _scores(session, [pairs[index] for index in indices])
        yield [(index, row[: len(pairs[index][1])]) for index, row in zip(indices, scores, strict=True)]


def _scores(session: StepSession, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Log-probabilities of the targets of one batch, ``(N, T)``, with arbitrary values after the end of a target."""
    # The step that produces a token is fed the preceding token, so the last token is never fed.
    batch = forced_batch([(source, target[:-1]) for source, target in pairs], session.special)
    labels, _ = pad([target for _, target in pairs], session.special.eos)
    scores = np.empty(labels.shape)
    rows, given = np.arange(len(pairs)), len(session.special.prefix)
    steps = forced_steps(session.start(batch.source, batch.source_length), batch.target)
    for step, logits in enumerate(islice(steps, given, None)):
        values = logits.astype(np.float64)
        values[:, session.special.suppress] = -np.inf
        values -= values.max(axis=1, keepdims=True)
        scores[:, step] = values[rows, labels[:, step]] - np.log(np.exp(values).sum(axis=1))
    return scores
