"""Greedy and beam search over the logits of one step, independent of the model and of where its state is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.decoding.best_tokens import best_tokens, log_sum_exp
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import FloatArray, IntArray
from edgeformer_runtime.errors import ModelError

BestTokens = Callable[[FloatArray, NDArray[np.float64], int], tuple[NDArray[np.float64], IntArray, IntArray]]
"""Finds the most probable extensions; see :func:`~edgeformer_runtime.decoding.best_tokens.best_tokens`."""


@dataclass(frozen=True)
class Hypothesis:
    """One possible output of one sentence."""

    ids: tuple[int, ...]
    """Token ids without start and end token."""
    score: float | None
    """Normalized log-probability (see :class:`DecodeOptions`); ``None`` if scores were not requested."""
    finished: bool
    """Whether it ended with the end token, rather than at the length limit."""


@dataclass(frozen=True)
class Advance:
    """How the rows of the next step follow from the current rows."""

    rows: IntArray | None
    """For each row of the next step, the row that it continues, ``(R',)``; ``None`` if all rows stay in place."""
    sentences: IntArray | None
    """For each sentence of the next step, its current index, ``(N',)``; ``None`` if all continue."""


class Search(Protocol):
    """Holds the live rows of one batch and collects finished hypotheses."""

    token: IntArray
    """Last token of each live row, ``(R,)``."""
    history: IntArray
    """Tokens of each live row so far, without the start token, ``(R, T)``."""

    @property
    def is_finished(self) -> bool:
        """Whether no sentence is left to extend."""

    def advance(self, logits: FloatArray) -> Advance:
        """Extend the live rows by one token, given logits ``(R, V)``, float32, which may be overwritten.

        Raises:
            ModelError: the best logit of a row is not finite.
        """

    def finish(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence, best first; hypotheses that are still live are truncated."""


class GreedySearch:
    """Takes the most probable token at each step; ties go to the lowest id."""

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
        peak = logits[np.arange(len(logits)), self.token, None]
        check_finite(peak, self.history)
        if self._options.return_scores:
            self._log_probability += (peak - log_sum_exp(logits, peak))[:, 0]
        ended = self.token == self._eos
        if not ended.any():
            self.history = np.concatenate((self.history, self.token[:, None]), axis=1)
            return Advance(None, None)
        for row in np.flatnonzero(ended):
            self._collect(int(row), finished=True)
        keep = packed(~ended)
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
            score = normalized_score(
                float(self._log_probability[row]), len(ids) + finished, self._options.length_penalty
            )
        self._results[self._origin[row]].append(Hypothesis(tuple(ids.tolist()), score, finished))


class BeamSearch:
    """Keeps the K most probable unfinished hypotheses of each sentence.

    A hypothesis is finished when its end token is among the K best of the ``K * V`` extensions. A sentence is finished
    when it has K finished hypotheses (fairseq's rule). At the length limit, unfinished hypotheses fill the
    remaining places.

    Args:
        sentences: N.
        options: how to search; K is its beam size.
        special: ids of the special tokens.
        best: finds the most probable extensions.
        row_multiple: the number of rows per sentence is a multiple of this in every step; surplus rows are masked out.
            If it is 1, the first step has one row per sentence, since all beams start alike, and later steps have K.
    """

    def __init__(
        self,
        sentences: int,
        options: DecodeOptions,
        special: SpecialTokens,
        best: BestTokens = best_tokens,
        *,
        row_multiple: int = 1,
    ) -> None:
        self._best = best
        self._options, self._eos, self._beams = options, special.eos, options.beam_size
        self._results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self._origin = np.arange(sentences)
        self._width = -(-self._beams // row_multiple) * row_multiple
        """Rows per sentence after the first step."""
        width = self._width if row_multiple > 1 else 1
        # (N, rows per sentence): all beams start alike, so only the first may be extended in the first step
        self._log_probability = np.full((sentences, width), -np.inf, dtype=np.float64)
        self._log_probability[:, 0] = 0
        self.token = np.full(sentences * width, special.bos, dtype=np.int64)
        self.history = np.empty((sentences * width, 0), dtype=np.int64)

    @property
    def is_finished(self) -> bool:
        """See :class:`Search`."""
        return not len(self.token)

    def advance(self, logits: FloatArray) -> Advance:
        """See :class:`Search`."""
        beams, (sentences, width) = self._beams, self._log_probability.shape
        # (N, 2K) extensions, best first: at most K of them end, so at least K continue
        value, token, parent = self._best(logits, self._log_probability, 2 * beams)
        check_finite(value[:, 0], self.history)
        if (missing := 2 * beams - value.shape[1]) > 0:
            value = np.pad(value, ((0, 0), (0, missing)), constant_values=-np.inf)
            token, parent = (np.pad(array, ((0, 0), (0, missing))) for array in (token, parent))
        sentence = np.arange(sentences)[:, None]
        ends, alive = token == self._eos, None
        if ends.any():
            for index, rank in zip(*np.nonzero(ends[:, :beams] & np.isfinite(value[:, :beams])), strict=True):
                ids = self.history[index * width + parent[index, rank]]
                self._collect(index, ids, float(value[index, rank]), finished=True)
            live = np.array([len(self._results[origin]) < beams for origin in self._origin])
            if not live.all():
                alive = packed(live)
                sentence, ends, value, token, parent = (
                    alive[:, None],
                    ends[alive],
                    value[alive],
                    token[alive],
                    parent[alive],
                )
                self._origin = self._origin[alive]
            # (N', 2K): extensions that continue come first, in their original order
            order = np.argsort(ends, axis=1, kind="stable")
            value = np.take_along_axis(value, order, axis=1)
            token, parent = (np.take_along_axis(array, order, axis=1) for array in (token, parent))
        self._log_probability, self.token = value[:, : self._width], token[:, : self._width].ravel()
        self._log_probability[:, beams:] = -np.inf
        rows = (sentence * width + parent[:, : self._width]).ravel()
        self.history = np.concatenate((self.history[rows], self.token[:, None]), axis=1)
        in_place = alive is None and width == self._width and bool((rows == np.arange(len(rows))).all())
        return Advance(None if in_place else rows, alive)

    def finish(self) -> list[list[Hypothesis]]:
        """See :class:`Search`."""
        for sentence, origin in enumerate(self._origin):
            for beam in range(self._log_probability.shape[1]):
                log_probability = float(self._log_probability[sentence, beam])
                if len(self._results[origin]) < self._beams and np.isfinite(log_probability):
                    ids = self.history[sentence * self._log_probability.shape[1] + beam]
                    self._collect(sentence, ids, log_probability, finished=False)
        for results in self._results:
            results.sort(key=lambda hypothesis: hypothesis.score or 0.0, reverse=True)
        return [results[: self._options.n_best] for results in self._results]

    def _collect(self, sentence: int, ids: IntArray, log_probability: float, *, finished: bool) -> None:
        results = self._results[self._origin[sentence]]
        if len(results) < self._beams:
            score = normalized_score(log_probability, len(ids) + finished, self._options.length_penalty)
            results.append(Hypothesis(tuple(ids.tolist()), score, finished))


def check_finite(values: NDArray[np.floating[Any]], history: IntArray) -> None:
    """Check that the best value of each row is finite.

    Args:
        values: largest logit or log-probability of each row.
        history: tokens of each row so far, ``(R, T)``.

    Raises:
        ModelError: a value is infinite or NaN.
    """
    if not np.isfinite(values).all():
        raise ModelError(
            f"At step {history.shape[1] + 1} no token has a finite logit: the model's weights are damaged, or "
            "`min_length` and `no_repeat_ngram_size` together forbid every token."
        )


def packed(alive: NDArray[np.bool_]) -> IntArray:
    """Indices of true entries, in an order that moves as few entries as possible: the last entries fill the gaps."""
    count = int(alive.sum())
    order = np.arange(count)
    order[~alive[:count]] = count + np.flatnonzero(alive[count:])
    return order


def normalized_score(log_probability: float, length: int, length_penalty: float) -> float:
    """Compute the score of a hypothesis with ``length`` tokens; see :class:`DecodeOptions`."""
    return float(log_probability / max(length, 1) ** length_penalty)
