"""Greedy and beam search over the logits of one step, independent of the model and of where its state is stored."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.search.best_tokens import best_tokens, log_sum_exp
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.repeats import ends_in_repeats
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.sampling import Sampler
from edgeformer_runtime.search.session import BestTokens, FloatArray, IntArray

FIRST_COLUMNS = 32
"""Number of steps for which there is room at first."""
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Hypothesis:
    """One possible output of one sentence."""

    ids: tuple[int, ...]
    """Token ids, without the end token and what every target begins with."""
    score: float | None
    """Normalized log-probability (see :class:`DecodeOptions`); ``None`` if scores were not requested."""
    finished: bool
    """Whether it ended with the end token, rather than at the length limit or in a loop."""
    token_scores: tuple[float, ...] | None = None
    """Log-probability of each token, end token included, 0 for given tokens; ``None`` if they were not requested."""


SentenceCallback = Callable[[int, list[Hypothesis]], object]
"""Takes the position of a sentence and its hypotheses, best first."""


class RowSelection(NamedTuple):
    """How the rows of the next step follow from the current rows."""

    rows: IntArray | None
    """For each row of the next step, the row that it continues, ``(R',)``; ``None`` if all rows stay in place."""
    sentences: IntArray | None
    """For each sentence of the next step, its current index, ``(N',)``; ``None`` if all continue."""

    def then(self, rows: IntArray, sentences: IntArray) -> RowSelection:
        """Keep only some of the rows and sentences of the next step; a state is changed once per step."""
        return RowSelection(
            rows if self.rows is None else self.rows[rows],
            sentences if self.sentences is None else self.sentences[sentences],
        )


class Search(ABC):
    """Live rows of one batch and the hypotheses collected so far; the base of greedy and beam search.

    Args:
        requests: the N sentences; their prefixes have the same length.
        options: how to search.
        special: ids of the special tokens.
        width: rows per sentence in the first step.
    """

    def __init__(self, requests: Sequence[Request], options: DecodeOptions, special: SpecialTokens, width: int) -> None:
        self._options, self._eos = options, special.eos
        self._forbidden = list(special.forbid)
        self._results: list[list[Hypothesis]] = [[] for _ in requests]
        self._origin = np.arange(len(requests))
        """Index in the batch of each live sentence, ``(N',)``."""
        self._limit = np.array([request.limit for request in requests])
        """Maximum length of each live sentence, ``(N',)``."""
        self._shortest_limit = int(self._limit.min())
        prefix = np.array([request.prefix for request in requests], dtype=np.int64).reshape(len(requests), -1)
        self._tokens = _Columns(prefix.repeat(width, axis=0))
        start = [np.full(len(requests) * width, token, dtype=np.int64) for token in special.start]
        columns: list[IntArray] = [*start, *np.ascontiguousarray(self.history.T)]
        self.before: Sequence[IntArray] = columns[:-1]
        """Tokens to feed before the search begins, ``(R,)`` each: what every target begins with and the prefix, without
        the last of these tokens."""
        self.token = columns[-1]
        """Last token of each live row, ``(R,)``."""
        self._given_tokens = len(special.prefix)
        """Number of tokens that count in the length of every output but are not part of it."""
        self._given = np.array([request.log_probability or 0.0 for request in requests])
        """Log-probability of each sentence before the search, ``(N,)``."""
        self._trail: _Columns | None = None
        """Log-probability of each live row after each of its tokens, if token scores are requested."""
        if options.return_token_scores:
            trail = np.zeros(self.history.shape)
            trail[:, -1:] = self._given.repeat(width)[:, None]
            self._trail = _Columns(trail)

    @property
    def history(self) -> IntArray:
        """Tokens of each live row so far, without what every target begins with, ``(R, T)``; valid until the next
        step."""
        return self._tokens.values

    @property
    def sentence(self) -> IntArray:
        """Index of each live row's sentence in the batch, ``(R,)``."""
        return self._origin.repeat(len(self.token) // max(1, len(self._origin)))

    @property
    def is_finished(self) -> bool:
        """Whether no sentence is left to extend."""
        return not len(self._origin)

    @property
    def token_scores(self) -> NDArray[np.float64]:
        """Log-probability of each token of the live rows, ``(R, T)``; zeros if token scores are not requested."""
        return np.zeros(self.history.shape) if self._trail is None else np.diff(self._trail.values, axis=1, prepend=0.0)

    @abstractmethod
    def advance(self, logits: FloatArray) -> RowSelection:
        """Extend the live rows by one token.

        Args:
            logits: ``(R, V)``, float32; may be overwritten.

        Raises:
            ModelError: the best logit of a row is not finite.
        """

    def drop(self, sentences: Collection[int]) -> tuple[IntArray, IntArray]:
        """Give up sentences of the batch after a step; they have no hypotheses.

        Args:
            sentences: their indices in the batch; some of :attr:`sentence`.

        Returns:
            The rows and the live sentences that are left.
        """
        for sentence in sentences:
            self._results[sentence] = []
        width = len(self.token) // max(1, len(self._origin))
        alive = packed(~np.isin(self._origin, list(sentences)))
        self._keep(alive)
        return (alive[:, None] * width + np.arange(width)).ravel(), alive

    def hypotheses(self, sentence: int) -> list[Hypothesis]:
        """Return the hypotheses of a sentence that is finished, best first.

        Args:
            sentence: its index in the batch, which is not one of :attr:`sentence` any more.
        """
        best = sorted(self._results[sentence], key=lambda hypothesis: hypothesis.score or 0.0, reverse=True)
        return best[: self._options.n_best]

    def finish(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence, once the search is finished."""
        return list(map(self.hypotheses, range(len(self._results))))

    def _stopped(self) -> NDArray[np.bool_] | None:
        """Whether each live row may not become longer, ``(R,)``; ``None`` if all may."""
        rows, length = len(self.token), self._tokens.length
        stopped = None
        if length >= self._shortest_limit:
            stopped = (self._limit <= length).repeat(rows // len(self._limit))
        if self._options.max_ngram_repeats:
            repeats = ends_in_repeats(self.history, self._options.max_ngram_repeats)
            stopped = repeats if stopped is None else stopped | repeats
        return stopped if stopped is not None and stopped.any() else None

    def _extend(self, rows: IntArray | None, log_probability: NDArray[np.float64]) -> None:
        """Continue ``rows`` with the new tokens and their log-probability; ``None`` if all rows stay in place."""
        self._tokens.extend(rows, self.token)
        if self._trail is not None:
            self._trail.extend(rows, log_probability)

    def _keep_rows(self, rows: IntArray) -> None:
        """Drop all rows but these."""
        self.token = self.token[rows]
        self._tokens.keep(rows)
        if self._trail is not None:
            self._trail.keep(rows)

    def _keep(self, sentences: IntArray) -> None:
        """Drop all sentences but these."""
        self._origin, self._limit = self._origin[sentences], self._limit[sentences]
        self._shortest_limit = int(self._limit.min(initial=_NO_LIMIT))

    def _collect(self, sentence: int, row: int, log_probability: float, *, finished: bool) -> None:
        """Add a hypothesis of a live sentence to its results.

        Args:
            sentence: index of the live sentence.
            row: row whose history it has.
            log_probability: its log-probability.
            finished: whether it ends with the end token, which is not part of the history.
        """
        options, ids = self._options, self.history[row]
        score = token_scores = None
        if options.needs_scores or options.beam_size > 1:
            length = self._given_tokens + len(ids) + (finished and options.length_includes_end)
            score = normalized_score(log_probability, length, options.length_penalty)
        if self._trail is not None:
            token_scores = tuple(np.diff([0.0, *self._trail.values[row], *[log_probability] * finished]).tolist())
        hypothesis = Hypothesis(tuple(ids.tolist()), score, finished, token_scores)
        self._results[self._origin[sentence]].append(hypothesis)


class GreedySearch(Search):
    """Takes the most probable token at each step, or samples one; ties go to the lowest id.

    Args:
        requests: the N sentences; their prefixes have the same length.
        options: how to search.
        special: ids of the special tokens.
    """

    def __init__(self, requests: Sequence[Request], options: DecodeOptions, special: SpecialTokens) -> None:
        super().__init__(requests, options, special, width=1)
        self._log_probability = self._given.copy()
        self._rows = np.arange(len(requests))
        self._sampler = Sampler(requests, options) if options.is_sampling else None

    def advance(self, logits: FloatArray) -> RowSelection:
        """See :class:`Search`."""
        if self._forbidden:
            forbidden = logits[:, self._forbidden]  # a copy
            logits[:, self._forbidden] = -np.inf
        self.token = logits.argmax(axis=1)
        rows = self._rows[: len(logits)]
        peak = chosen = logits[rows, self.token]
        check_finite(peak, self._tokens.length)
        if self._sampler is not None:
            self.token = self._sampler(logits)
            chosen = logits[rows, self.token]
        if self._options.needs_scores:
            total = log_sum_exp(logits, peak[:, None])
            if self._forbidden:
                total = np.logaddexp(total, np.logaddexp.reduce(forbidden, axis=1, keepdims=True))
            self._log_probability += chosen - total[:, 0]
        any_ended = self._eos in (tokens := self.token.tolist())
        for row, token in enumerate(tokens) if any_ended else ():
            if token == self._eos:
                self._collect(row, row, float(self._log_probability[row]), finished=True)
        self._extend(None, self._log_probability)
        stopped = self._stopped()
        if stopped is None and not any_ended:
            return RowSelection(None, None)
        ended = self.token == self._eos
        if stopped is not None:
            for row in np.flatnonzero(stopped & ~ended).tolist():
                self._collect(row, row, float(self._log_probability[row]), finished=False)
            ended |= stopped
        keep = packed(~ended)
        self._keep(keep)
        return RowSelection(keep, keep)

    def _keep(self, sentences: IntArray) -> None:
        super()._keep(sentences)
        self._keep_rows(sentences)
        self._log_probability = self._log_probability[sentences]
        if self._sampler is not None:
            self._sampler.keep(sentences)


class BeamSearch(Search):
    """Keeps the K most probable unfinished hypotheses of each sentence.

    A hypothesis is finished when its end token is among the K best of the ``K * V`` extensions. A sentence is finished
    when it has K finished hypotheses (fairseq's rule), or K times patience. Unfinished hypotheses that may not become
    longer fill the remaining places. If the beam shrinks, each finished hypothesis also takes one of the K places of
    those that continue (Marian's rule). Without early stopping, a sentence with K finished hypotheses continues while
    an unfinished one, divided by its present length, scores higher than the worst of the K best (Transformers' rule).

    In the first step after a prefix, an end token finishes a hypothesis only if it is the best extension (CTranslate2's
    rule): the prefix adds to the length by which scores are divided but not to the log-probability, so that an
    improbable end would look good. Any other end token takes one of the K places and is dropped.

    Args:
        requests: the N sentences; their prefixes have the same length.
        options: how to search; K is its beam size.
        special: ids of the special tokens.
        best: finds the most probable extensions.
        row_multiple: the number of rows per sentence is a multiple of this in every step; surplus rows are masked out.
            If it is 1, the first step has one row per sentence, since all beams start alike, and later steps have K.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        options: DecodeOptions,
        special: SpecialTokens,
        best: BestTokens = best_tokens,
        *,
        row_multiple: int = 1,
    ) -> None:
        self._best, self._beams = best, options.beam_size
        self._width = -(-self._beams // row_multiple) * row_multiple
        """Rows per sentence after the first step."""
        self._in_place = list(range(len(requests) * self._width))
        """The rows of a step in which all stay in place."""
        width = self._width if row_multiple > 1 else 1
        super().__init__(requests, options, special, width)
        self._follows_prefix = len(self.before) > 0 and requests[0].log_probability is None
        """Whether the next step is the first one after a prefix."""
        # (N, rows per sentence): all beams start alike, so only the first may be extended in the first step
        self._log_probability = np.full((len(requests), width), -np.inf, dtype=np.float64)
        self._log_probability[:, 0] = self._given

    def advance(self, logits: FloatArray) -> RowSelection:
        """See :class:`Search`."""
        beams, (sentences, width) = self._beams, self._log_probability.shape
        # 1. Find 2K extensions of each sentence, (N, 2K), best first. Each of its K rows has one end token, so at most
        #    K of these end, and at least K continue. If the vocabulary is too small for 2K, the rest is masked.
        value, token, parent = self._extensions(logits, 2 * beams)
        check_finite(value[:, 0], self._tokens.length)
        if (missing := 2 * beams - value.shape[1]) > 0:
            value = np.pad(value, ((0, 0), (0, missing)), constant_values=-np.inf)
            token, parent = (np.pad(array, ((0, 0), (0, missing))) for array in (token, parent))
        # 2. In a beam that shrinks, drop all but as many extensions as there are places without finished hypotheses.
        if self._options.beam_shrinks:
            room = beams - np.array([len(self._results[origin]) for origin in self._origin])
            value[np.arange(2 * beams) >= room[:, None]] = -np.inf
        # 3. Collect those of the K best that end, and let the K best of the others continue.
        any_ends = self._eos in token.ravel().tolist()
        if any_ends:
            value, token, parent = self._ended(value, token, parent)
        self._follows_prefix = False
        self._log_probability, self.token = value[:, : self._width], token[:, : self._width].ravel()
        if self._width > beams:  # surplus rows, which are there for their number only
            self._log_probability[:, beams:] = -np.inf
        # 4. Say which row each of them continues: from beams of a sentence to rows of the batch.
        rows = parent[:, : self._width]
        if sentences > 1:
            rows = rows + np.arange(0, sentences * width, width)[:, None]
        rows = rows.ravel()
        stay = width == self._width and rows.tolist() == self._in_place[: len(rows)]
        self._extend(None if stay else rows, self._log_probability.ravel())
        # 5. Drop the sentences that are finished. Where nothing ends or is stopped, only the rule that compares
        #    unfinished with finished hypotheses can finish one.
        stopped = self._stopped()
        if any_ends or stopped is not None or not self._options.early_stopping:
            alive = self._alive(stopped)
            if alive is not None:
                return RowSelection(rows.reshape(sentences, self._width)[alive].ravel(), alive)
        return RowSelection(None if stay else rows, None)

    def _ended(
        self, value: NDArray[np.float64], token: IntArray, parent: IntArray
    ) -> tuple[NDArray[np.float64], IntArray, IntArray]:
        """Collect the hypotheses that end, and move extensions that continue to the front, in their order."""
        ends = token == self._eos
        if self._follows_prefix:  # an end token counts only if it is the best extension
            value[:, 1:][ends[:, 1:]] = -np.inf
            ends[:, 1:] = False
        sentences, count = ends.shape
        for place in np.flatnonzero(ends[:, : self._beams] & np.isfinite(value[:, : self._beams])).tolist():
            index, rank = divmod(place, self._beams)
            row = index * self._log_probability.shape[1] + int(parent[index, rank])
            self._collect_if_room(index, row, float(value[index, rank]), finished=True)
        order = ends.argsort(axis=1, kind="stable")  # False goes before True
        if sentences > 1:
            order += np.arange(0, sentences * count, count)[:, None]
        return value.take(order), token.take(order), parent.take(order)

    def _extensions(self, logits: FloatArray, count: int) -> tuple[NDArray[np.float64], IntArray, IntArray]:
        """The ``count`` most probable extensions of each sentence by a token that may be generated."""
        if not self._forbidden:
            return self._best(logits, self._log_probability, count)
        # These tokens stay in the distribution, so they cannot be masked before: find as many more as they might take.
        more = count + self._log_probability.shape[1] * len(self._forbidden)
        value, token, parent = self._best(logits, self._log_probability, more)
        barred = np.isin(token, self._forbidden)
        value[barred] = -np.inf
        allowed = np.argsort(barred, axis=1, kind="stable")[:, :count]
        value = np.take_along_axis(value, allowed, axis=1)
        return value, np.take_along_axis(token, allowed, axis=1), np.take_along_axis(parent, allowed, axis=1)

    def _alive(self, stopped: NDArray[np.bool_] | None) -> IntArray | None:
        """Drop rows that may not become longer, and sentences that have all their hypotheses or no rows left.

        Args:
            stopped: rows that may not become longer, ``(R,)``; they fill the remaining places of their sentence.

        Returns:
            For each sentence kept, its previous index; ``None`` if all are kept.
        """
        width = self._width
        if stopped is not None:
            stopped = stopped.reshape(-1, width)
            for index, beam in np.argwhere(stopped & np.isfinite(self._log_probability)).tolist():
                log_probability = float(self._log_probability[index, beam])
                self._collect_if_room(index, index * width + beam, log_probability, finished=False)
            self._log_probability[stopped] = -np.inf
        best = self._log_probability.max(axis=1)
        live = [self._can_improve(index, value) for index, value in enumerate(best.tolist())]
        if all(live):
            return None
        alive = packed(np.array(live))
        self._keep(alive)
        return alive

    def _keep(self, sentences: IntArray) -> None:
        super()._keep(sentences)
        self._keep_rows((sentences[:, None] * self._width + np.arange(self._width)).ravel())
        self._log_probability = self._log_probability[sentences]

    def _can_improve(self, sentence: int, best: float) -> bool:
        """Whether a live sentence has unfinished hypotheses, the best one with log-probability ``best``, and either too
        few finished ones or one that may be worse."""
        if best == -math.inf:
            return False
        options, results = self._options, self._results[self._origin[sentence]]
        if len(results) < options.places:
            return True
        if options.early_stopping:
            return False
        worst = sorted((hypothesis.score or 0.0 for hypothesis in results), reverse=True)[options.places - 1]
        length = self._given_tokens + self._tokens.length
        return normalized_score(best, length, options.length_penalty) > worst

    def _collect_if_room(self, sentence: int, row: int, log_probability: float, *, finished: bool) -> None:
        options = self._options
        if not options.early_stopping or len(self._results[self._origin[sentence]]) < options.places:
            self._collect(sentence, row, log_probability, finished=finished)


class _Columns:
    """An array that grows by one column per step, in place: ``(R, T)``."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.length = values.shape[1]
        self._buffer = np.empty((len(values), self.length + FIRST_COLUMNS), values.dtype)
        self._buffer[:, : self.length] = values

    @property
    def values(self) -> NDArray[Any]:
        """The columns so far, ``(R, T)``; changed by the next step."""
        return self._buffer[:, : self.length]

    def extend(self, rows: IntArray | None, column: NDArray[Any]) -> None:
        """Continue ``rows`` with ``column`` ``(R',)``; ``None`` if all rows stay in place."""
        length, capacity = self.length, self._buffer.shape[1]
        if rows is not None:
            self._buffer = self._buffer.take(rows, axis=0)
        if length == capacity:
            self._buffer = np.pad(self._buffer, ((0, 0), (0, capacity)))
        self._buffer[:, length] = column
        self.length += 1

    def keep(self, rows: IntArray) -> None:
        """Drop all rows but these."""
        self._buffer = self._buffer.take(rows, axis=0)


def check_finite(values: NDArray[np.floating[Any]], length: int) -> None:
    """Check that the best value of each row is finite.

    Args:
        values: largest logit or log-probability of each row.
        length: number of tokens so far.

    Raises:
        ModelError: a value is infinite or NaN.
    """
    if not math.isfinite(sum(values.tolist())):
        raise ModelError(
            f"At step {length + 1} no token has a finite logit: the model's weights are damaged, or "
            "decoding options such as `min_length`, `no_repeat_ngram_size` and `suppress_tokens` together forbid every "
            "token."
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
