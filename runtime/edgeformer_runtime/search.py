"""Greedy and beam search over the logits of one step. Neither knows the model, nor where its state is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.manifest import SpecialTokens
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.session import FloatArray, IntArray

AnyFloat = TypeVar("AnyFloat", np.float32, np.float64)


@dataclass(frozen=True)
class Hypothesis:
    """One possible output of one sentence."""

    ids: tuple[int, ...]
    """Token ids without start and end token."""
    score: float | None
    """Normalised log-probability (see :class:`DecodeOptions`); none if it was not asked for."""
    finished: bool
    """Whether it ended with the end token, and was not cut off."""


@dataclass(frozen=True)
class Advance:
    """What follows from one step."""

    rows: IntArray | None
    """For each row that goes on, the row it continues, ``(R',)``; none if all rows go on in place."""
    sentences: IntArray | None
    """For each sentence that goes on, its index before, ``(N',)``; none if all go on."""


class Search(Protocol):
    """Holds the live rows of one batch and collects what is finished."""

    token: IntArray
    """Last token of each live row, ``(R,)``."""
    history: IntArray
    """Tokens of each live row so far, without the start token, ``(R, T)``."""

    @property
    def is_finished(self) -> bool:
        """Whether no sentence goes on."""

    def advance(self, logits: FloatArray) -> Advance:
        """Extend the live rows by one token, given logits ``(R, V)``."""

    def finish(self) -> list[list[Hypothesis]]:
        """The hypotheses of every sentence, best first; rows still alive are cut off."""


class GreedySearch:
    """Takes the most probable token at each step; of equal ones, that with the lowest id."""

    def __init__(self, sentences: int, options: DecodeOptions, special: SpecialTokens) -> None:
        self._options, self._eos = options, special.eos
        self._results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._origin = np.arange(sentences)
        self._log_probability = np.zeros(sentences, dtype=np.float64)
        self.token = np.full(sentences, special.bos, dtype=np.int64)
        self.history = np.empty((sentences, 0), dtype=np.int64)

    @property
    def is_finished(self) -> bool:
        """See :class:`Search`."""
        return not len(self.token)

    def advance(self, logits: FloatArray) -> Advance:
        """See :class:`Search`."""
        self.token = logits.argmax(axis=1)
        peak = logits[np.arange(len(logits)), self.token][:, None]
        check_finite(peak, self.history)
        if self._options.return_scores:
            self._log_probability -= np.log(np.exp(logits - peak).sum(axis=1))
        ended = self.token == self._eos
        if not ended.any():
            self.history = np.concatenate((self.history, self.token[:, None]), axis=1)
            return Advance(None, None)
        for row in np.flatnonzero(ended):
            self._collect(int(row), finished=True)
        keep = np.flatnonzero(~ended)
        self.token = self.token[keep]
        self.history = np.concatenate((self.history[keep], self.token[:, None]), axis=1)
        self._origin, self._log_probability = self._origin[keep], self._log_probability[keep]
        return Advance(keep, keep)

    def finish(self) -> list[list[Hypothesis]]:
        """See :class:`Search`."""
        for row in range(len(self.token)):
            self._collect(row, finished=False)
        return self._results

    def _collect(self, row: int, *, finished: bool) -> None:
        ids = self.history[row]
        score = None
        if self._options.return_scores:
            score = normalised(float(self._log_probability[row]), len(ids) + finished, self._options.length_penalty)
        self._results[self._origin[row]].append(Hypothesis(tuple(ids.tolist()), score, finished))


class BeamSearch:
    """Keeps the K most probable unfinished hypotheses of each sentence.

    A hypothesis is finished when its end token is among the K best of the ``K * V`` extensions. A sentence is finished
    when it has K such hypotheses (fairseq's rule). At the cut-off, unfinished ones fill up what is missing.
    """

    def __init__(self, sentences: int, options: DecodeOptions, special: SpecialTokens) -> None:
        beams = options.beam_size
        self._options, self._eos, self._beams = options, special.eos, beams
        self._results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._origin = np.arange(sentences)
        # (N, K): all beams of a sentence start alike, so only the first may be extended at the first step
        self._log_probability = np.full((sentences, beams), -np.inf, dtype=np.float64)
        self._log_probability[:, 0] = 0
        self.token = np.full(sentences * beams, special.bos, dtype=np.int64)
        self.history = np.empty((sentences * beams, 0), dtype=np.int64)

    @property
    def is_finished(self) -> bool:
        """See :class:`Search`."""
        return not len(self.token)

    def advance(self, logits: FloatArray) -> Advance:
        """See :class:`Search`."""
        sentences = len(self._origin)
        # Each row's 2K best tokens hold all of the sentence's 2K best extensions.
        best, candidate = largest(logits, 2 * self._beams)
        peak = best[:, :1]
        with np.errstate(invalid="ignore"):  # checked right below
            log_sum = peak + np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
        check_finite(log_sum, self.history)
        total = self._log_probability.reshape(-1, 1) + (best - log_sum)
        # (N, 2K) best extensions, best first: at most K of them end, so K go on
        value, position = largest(total.reshape(sentences, -1), 2 * self._beams)
        parent = position // candidate.shape[1]
        token = np.take_along_axis(candidate.reshape(sentences, -1), position, axis=1)
        ends = token == self._eos
        for sentence, rank in zip(
            *np.nonzero(ends[:, : self._beams] & np.isfinite(value[:, : self._beams])), strict=True
        ):
            ids = self.history[sentence * self._beams + parent[sentence, rank]]
            self._collect(sentence, ids, float(value[sentence, rank]), finished=True)
        live = np.array([len(self._results[origin]) < self._beams for origin in self._origin])
        # (N', K): positions of the K best extensions that go on
        going = np.argsort(ends[live], axis=1, kind="stable")[:, : self._beams]
        self._log_probability = np.take_along_axis(value[live], going, axis=1)
        self.token = np.take_along_axis(token[live], going, axis=1).ravel()
        sentence = np.flatnonzero(live)
        rows = (sentence[:, None] * self._beams + np.take_along_axis(parent[live], going, axis=1)).ravel()
        self.history = np.concatenate((self.history[rows], self.token[:, None]), axis=1)
        self._origin = self._origin[live]
        in_place = len(rows) == len(logits) and bool((rows == np.arange(len(rows))).all())
        return Advance(None if in_place else rows, None if live.all() else sentence)

    def finish(self) -> list[list[Hypothesis]]:
        """See :class:`Search`."""
        for sentence, origin in enumerate(self._origin):
            for beam in range(self._beams):
                log_probability = float(self._log_probability[sentence, beam])
                if len(self._results[origin]) < self._beams and np.isfinite(log_probability):
                    self._collect(
                        sentence, self.history[sentence * self._beams + beam], log_probability, finished=False
                    )
        for results in self._results:
            results.sort(key=lambda hypothesis: hypothesis.score or 0.0, reverse=True)
        return [results[: self._options.n_best] for results in self._results]

    def _collect(self, sentence: int, ids: IntArray, log_probability: float, *, finished: bool) -> None:
        results = self._results[self._origin[sentence]]
        if len(results) < self._beams:
            score = normalised(log_probability, len(ids) + finished, self._options.length_penalty)
            results.append(Hypothesis(tuple(ids.tolist()), score, finished))


def check_finite(values: FloatArray, history: IntArray) -> None:
    """Refuse to choose among values that are not numbers.

    Args:
        values: largest logit of each row, or the logarithm of the sum of exponentials, ``(R, 1)``.
        history: tokens of each row so far, ``(R, T)``.

    Raises:
        ModelError: a row has no finite logit, or one that is not a number.
    """
    if not np.isfinite(values).all():
        raise ModelError(
            f"At step {history.shape[1] + 1} no token has a finite logit: the model's weights are damaged, or "
            "`min_length` and `no_repeat_ngram_size` together forbid every token."
        )


def normalised(log_probability: float, length: int, length_penalty: float) -> float:
    """Score of a hypothesis; see :class:`DecodeOptions`."""
    return float(log_probability / max(length, 1) ** length_penalty)


def largest(values: NDArray[AnyFloat], count: int) -> tuple[NDArray[AnyFloat], IntArray]:
    """The ``count`` largest of each row, largest first, and their positions."""
    count = min(count, values.shape[1])
    position = np.sort(np.argpartition(values, -count, axis=1)[:, -count:], axis=1)
    order = np.argsort(-np.take_along_axis(values, position, axis=1), axis=1, kind="stable")
    position = np.take_along_axis(position, order, axis=1)
    return np.take_along_axis(values, position, axis=1), position
