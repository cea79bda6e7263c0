"""Teacher forcing: feed given target tokens to a decoder instead of the tokens it would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import GIB, MAX_DECODING_BYTES
from edgeformer_runtime.search.requests import pad, single_row_batches
from edgeformer_runtime.search.session import DecoderState, FloatArray, IntArray, StepSession

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


def check_size(session: StepSession, batch: ForcedBatch) -> None:
    """Check that a batch fits in memory, before it is started.

    Raises:
        OptionError: it may need more than :data:`~edgeformer_runtime.limits.MAX_DECODING_BYTES`.
    """
    (count, source), steps = batch.source.shape, batch.target.shape[1]
    if session.batch_bytes(count, count, source, steps) > MAX_DECODING_BYTES:
        raise OptionError(
            f"{count} sentences of {source} source and {steps} target tokens may need more memory at a time than the "
            f"limit of {MAX_DECODING_BYTES // GIB} GiB; shorten them, or reduce `max_batch_tokens`."
        )


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
    state.bound(target.shape[1])
    for token in columns(target):
        yield state.step(token)


def forced_attention(state: DecoderState, target: IntArray) -> FloatArray:
    """Feed targets ``(R, T)`` token by token and collect the attention of each step.

    Args:
        state: a state before its first step; advanced in place.
        target: tokens to feed, those that every target begins with included, int64; T is at least 1.

    Returns:
        Weights of the source positions, ``(R, T, S)``, float32.

    Raises:
        BundleError: the model has no attention weights.
    """
    state.bound(target.shape[1])
    return np.stack([state.attend(token) for token in columns(target)], axis=1)


def score_batches(
    session: StepSession, pairs: Sequence[Pair], max_batch_tokens: int = 4096
) -> Iterator[list[tuple[int, NDArray[np.float64]]]]:
    """Score targets batch by batch. Scores are independent of the other pairs.

    Tokens that are not part of the distribution (``suppress``) have the probability 0, as in a search.

    Args:
        session: the model.
        pairs: source ids, end token included, and the target ids to score, at least one and at most
            :func:`~edgeformer_runtime.search.requests.longest_target` each; include the end token to score it.
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
    check_size(session, batch)
    steps = forced_steps(session.start(batch.source, batch.source_length), batch.target)
    for step, logits in enumerate(islice(steps, given, None)):
        values = logits.astype(np.float64)
        values[:, session.special.suppress] = -np.inf
        values -= values.max(axis=1, keepdims=True)
        scores[:, step] = values[rows, labels[:, step]] - np.log(np.exp(values).sum(axis=1))
    return scores
