"""The decode loop's session on the kernels of ``edgeformer-kernels``, for bundles with a plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import edgeformer_kernels
import numpy as np
from edgeformer_kernels import KernelHypothesis, SearchOptions

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import WEIGHTS_FILE
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.errors import BundleError, ConfigError, ModelError, SessionError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.search import Hypothesis, SentenceCallback
from edgeformer_runtime.search.session import DecoderState, FloatArray, IntArray
from edgeformer_runtime.search.shortlist import bundle_shortlist

if TYPE_CHECKING:
    from edgeformer_runtime.search.loop import Counters


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Convert errors of the kernels to :class:`ModelError`."""
    try:
        yield
    except (edgeformer_kernels.KernelError, MemoryError) as error:
        raise ModelError(f"The kernels cannot {what}: {str(error) or 'there is not enough memory'}.") from None


class KernelState(DecoderState):
    """The state of one batch on the kernels.

    Args:
        batch: the encoded sentences.
        vocab_size: V.
        listed: tokens that the batch is restricted to, ``(C,)``; ``None`` for the whole vocabulary.
    """

    @_reported("make room for logits")
    def __init__(self, batch: edgeformer_kernels.Batch, vocab_size: int, listed: IntArray | None) -> None:
        self._batch, self._vocab_size, self._listed = batch, vocab_size, listed
        self._logits: FloatArray = np.empty((batch.rows, vocab_size if listed is None else len(listed)), np.float32)

    @property
    def nbytes(self) -> int:
        """Size of the state, in bytes."""
        return self._batch.nbytes

    @_reported("make a step")
    def step(self, token: IntArray) -> FloatArray:
        """RowSelection every row; see :meth:`~edgeformer_runtime.search.session.DecoderState.step`."""
        logits = self._logits[: self._batch.rows]
        self._batch.step(np.ascontiguousarray(token), logits)
        if self._listed is None:
            return logits
        whole: FloatArray = np.full((len(logits), self._vocab_size), -np.inf, np.float32)
        whole[:, self._listed] = logits
        return whole

    @_reported("make a step")
    def attend(self, token: IntArray) -> FloatArray:
        """RowSelection every row and return attention weights; see
        :meth:`~edgeformer_runtime.search.session.DecoderState.attend`."""
        weights: FloatArray = np.empty((self._batch.rows, self._batch.longest), np.float32)
        self._batch.attend(np.ascontiguousarray(token), weights)
        return weights

    @_reported("select rows")
    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Continue with other rows; see :meth:`~edgeformer_runtime.search.session.DecoderState.select`."""
        del sentences  # the kernels know the sentence of each row
        self._batch.select(np.ascontiguousarray(rows))
        if len(rows) > len(self._logits):
            self._logits = np.empty((len(rows), self._logits.shape[1]), np.float32)


@dataclass
class _ModelHandle:
    """A model, which all its sessions share; ``None`` once it is closed."""

    model: edgeformer_kernels.Model | None


class KernelSession(BundleSession):
    """A bundle on the kernels, usable after a fork.

    Args:
        bundle: a checked bundle with a plan.
        shortlist: restrict searches by the bundle's shortlist, if it has one.
        level: instruction set, one of ``edgeformer_kernels.LEVELS``; by default, the best of the processor.

    Raises:
        BundleError: the plan is damaged, or needs another version of the kernels.
        ConfigError: the processor lacks the instruction set.
    """

    engine = "kernels"

    def __init__(self, bundle: Bundle, *, shortlist: bool = True, level: str = "") -> None:
        manifest = bundle.manifest
        super().__init__(bundle, "cpu", 1)
        self.uses_shortlist = shortlist and manifest.has_shortlist
        assert manifest.plan is not None
        sides = (
            (manifest.plan.source, manifest.source_vocab_size, manifest.max_source_length),
            (manifest.plan.target, manifest.target_vocab_size, manifest.max_target_length),
        )
        if any(side.rows != entries or side.positions < longest for side, entries, longest in sides):
            raise BundleError(f"Bundle `{bundle.path}`: plan and manifest differ in vocabularies or lengths.")
        try:
            weights = np.memmap(bundle.file(WEIGHTS_FILE), np.uint8, "r")
        except (OSError, ValueError) as error:
            raise BundleError(f"Bundle `{bundle.path}`: `{WEIGHTS_FILE}` cannot be read: {error}.") from None
        try:
            self._shared = _ModelHandle(edgeformer_kernels.Model(weights, manifest.plan.numbers(), level))
        except edgeformer_kernels.KernelError as error:
            raise BundleError(f"Bundle `{bundle.path}`: its plan is damaged: {error}; export it again.") from None
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._shortlist = bundle_shortlist(bundle) if self.uses_shortlist else None
        self._generated = np.ones(manifest.target_vocab_size, np.bool_)  # whether a token may be
        self._generated[[*manifest.special.suppress, *manifest.special.forbid]] = False

    def start(self, source: IntArray, source_length: IntArray) -> KernelState:
        """Run the encoder; see :meth:`~edgeformer_runtime.search.session.StepSession.start`."""
        return KernelState(self._batch(_sources(source, source_length)), self.bundle.manifest.target_vocab_size, None)

    def start_search(self, source: IntArray, source_length: IntArray) -> KernelState:
        """See :meth:`~edgeformer_runtime.search.session.StepSession.start_search`."""
        sources = _sources(source, source_length)
        batch = self._batch(sources)
        return KernelState(batch, self.bundle.manifest.target_vocab_size, self._restricted(batch, sources))

    def search(
        self, requests: Sequence[Request], options: DecodeOptions, counters: Counters, done: SentenceCallback | None
    ) -> list[list[Hypothesis]] | None:
        """Search as the decode loop does, to the end; see
        :meth:`~edgeformer_runtime.search.session.StepSession.search`."""
        if not _is_plain(options):
            return None
        started = time.perf_counter()
        sources = [request.source for request in requests]
        batch = self._batch(sources)
        listed = self._restricted(batch, sources)
        encoded = time.perf_counter()
        start = self.special.start
        stops = [request.stop for request in requests]

        def begun() -> None:
            counters.first_token_seconds += time.perf_counter() - started

        def ended(index: int, found: list[KernelHypothesis]) -> None:
            if found and done:  # it was not given up
                done(index, _hypotheses(requests[index], found, options))

        try:
            with _reported("search"):
                found = batch.search(
                    [(*start, *request.prefix) for request in requests],
                    [request.limit - len(request.prefix) for request in requests],
                    [request.log_probability or 0.0 for request in requests],
                    self._search_options(requests[0], options, restricted=listed is not None),
                    (lambda index: (stop := stops[index]) is not None and stop.is_set()) if any(stops) else None,
                    ended if done else None,
                    begun,
                )
        except FloatingPointError:
            raise ModelError("No token has a finite logit: the model's weights are damaged.") from None
        searched = time.perf_counter()
        steps = [len(hypotheses[0].ids) + hypotheses[0].finished for hypotheses in found if hypotheses]
        counters.batches += 1
        counters.steps += max(steps, default=0)
        counters.row_steps += sum(steps) * options.beam_size
        counters.encoder_seconds += encoded - started
        counters.decoder_seconds += searched - encoded
        counters.peak_state_bytes = max(counters.peak_state_bytes, batch.nbytes)
        results = [_hypotheses(*each, options) for each in zip(requests, found, strict=True)]
        counters.batch_seconds += time.perf_counter() - started
        return results

    def _search_options(self, request: Request, options: DecodeOptions, *, restricted: bool) -> SearchOptions:
        """Options of a search for the kernels; the prefixes of all its requests are as long as this one's."""
        special, greedy, given = self.special, options.beam_size == 1, len(request.prefix)
        return SearchOptions(
            beams=options.beam_size,
            hypotheses=1 if greedy else max(options.n_best, options.places),
            places=1 if greedy else options.places,
            shrinks=options.beam_shrinks and not greedy,
            stops_early=options.early_stopping or greedy,
            counts_end=options.length_includes_end,
            follows_prefix=len(special.start) + given > 1 and request.log_probability is None,
            wants_scores=options.needs_scores,
            length_penalty=options.length_penalty,
            given_length=len(special.prefix) + given,
            end=special.eos,
            suppressed=() if restricted else special.suppress,
            forbidden=() if restricted else special.forbid,
            loop_repeats=options.max_ngram_repeats,
            loop_given=given,
        )

    def batch_bytes(self, sentences: int, rows: int, source_length: int, length: int) -> int:
        """The size that the kernels report for the plan, and logits before and after they are processed; see
        :meth:`~edgeformer_runtime.search.session.StepSession.batch_bytes`."""
        found = self._opened().batch_bytes(sentences, rows, source_length, length)
        logits = 2 * rows * self.bundle.manifest.target_vocab_size * np.dtype(np.float32).itemsize
        return int(min(found, 2.0**62)) + logits

    def open_attention(self) -> Self:
        """Return this session, whose states return attention weights as they are."""
        self._opened()
        return self

    def close(self) -> None:
        """Free the model, once no batch uses it."""
        self._shared.model = None

    def _opened(self) -> edgeformer_kernels.Model:
        if (model := self._shared.model) is None:
            raise SessionError(f"The translator of bundle `{self.bundle.path}` is closed; open it again.")
        return model

    @_reported("encode")
    def _batch(self, sources: Sequence[Sequence[int]]) -> edgeformer_kernels.Batch:
        return self._opened().start(sources)

    @_reported("restrict the search")
    def _restricted(self, batch: edgeformer_kernels.Batch, sources: Sequence[Sequence[int]]) -> IntArray | None:
        if self._shortlist is None:
            return None
        listed, usable = self._shortlist.listed_together(sources)
        batch.restrict(listed, usable & self._generated[listed])
        return listed


def _sources(source: IntArray, source_length: IntArray) -> list[list[int]]:
    return [row[:length] for row, length in zip(source.tolist(), source_length.tolist(), strict=True)]


def _hypotheses(request: Request, found: Sequence[KernelHypothesis], options: DecodeOptions) -> list[Hypothesis]:
    """The best hypotheses of a sentence, their given tokens in front."""
    given, probability = (*request.prefix,), request.log_probability or 0.0
    scores = (*[0.0] * (len(given) - 1), probability)[: len(given)]
    has_score = options.needs_scores or options.beam_size > 1
    return [
        Hypothesis(
            (*given, *ids),
            score if has_score else None,
            finished,
            (*scores, *each) if options.return_token_scores else None,
        )
        for ids, score, finished, each in found[: options.n_best]
    ]


def _is_plain(options: DecodeOptions) -> bool:
    """Whether nothing changes logits, and nothing but the rules of beam search decides."""
    return not (
        options.is_sampling
        or options.min_length
        or options.no_repeat_ngram_size
        or options.repetition_penalty != 1
        or options.suppress_tokens
        or options.suppress_sequences
        or options.disable_unk
    )
