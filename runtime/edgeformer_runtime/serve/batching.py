"""Dynamic batching: sentences of concurrent requests are translated together, in threads of each model.

A sentence gets the same translation in any batch, so that requests do not notice each other.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Self, TypeVar

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.serve.settings import BatchLimits
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator

Measured = TypeVar("Measured")

WAIT_SHARE = 0.5
"""Share of the time of a request that it may be expected to wait. The rest is for its translation, and for what cannot
be expected."""


class QueueFullError(EdgeformerError):
    """A model has too many sentences waiting.

    Attributes:
        retry_after: seconds after which it is worth trying again.
    """

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"The server is busy; try again in {retry_after} s.")
        self.retry_after = retry_after


class ClosedError(EdgeformerError):
    """The server is shutting down."""

    retry_after = 1


@dataclass(frozen=True)
class Setting:
    """What the sentences of one batch share."""

    translator: Translator
    """The model, which whoever submits sentences leases until they are translated."""
    source: str
    target: str
    decoding: DecodeOptions


@dataclass(frozen=True)
class BatchReport:
    """What one batch took, for measurements."""

    model: str
    sentences: int
    requests: int
    source_tokens: int
    target_tokens: int
    seconds: float
    waited: float
    """Seconds that the oldest request of the batch waited."""


@dataclass(eq=False)
class Ticket:
    """A request in a queue, from before its sentences are known until they are translated. Leaving its ``with``
    statement gives up what is not translated yet."""

    expected: int
    """Approximate number of sentences."""
    sentences: Sequence[str] = ()
    setting: Setting | None = None
    """``None`` until the sentences are known."""
    future: Future[list[Translation]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    taken: int = 0
    done: dict[int, Translation] = field(default_factory=dict)
    """Translations by the position of the sentence."""

    @property
    def waiting(self) -> int:
        """Number of sentences that wait, as far as they are known."""
        return 0 if self.future.done() or self.setting is None else len(self.sentences) - self.taken

    @property
    def held(self) -> int:
        """Number of sentences that wait or are expected."""
        return self.expected if self.setting is None and not self.future.done() else self.waiting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.future.cancel()


Part = tuple[Ticket, range]
"""Positions of successive sentences of one ticket within a batch."""


class Batcher:
    """A model's queue and the threads that empty it.

    Args:
        model: its name.
        limits: sizes of batches and of the queue.
        report: called after each batch, in one of the model's threads.
        watch: called with the number of sentences that wait, whenever it changes.
    """

    def __init__(
        self,
        model: str,
        limits: BatchLimits = BatchLimits(),  # noqa: B008, is frozen
        report: Callable[[BatchReport], object] = lambda report: None,
        watch: Callable[[int], object] = lambda length: None,
    ) -> None:
        self._model, self._limits, self._report, self._watch = model, limits, report, watch
        self._tickets: deque[Ticket] = deque()
        self._changed = Condition()
        self._is_closed = False
        self._is_shared = True
        """Whether the last batch was of several requests."""
        self._rate = 0.0
        """Sentences per second while there were any, from :meth:`admit` to their translations; smoothed."""
        self._busy_since = self._ended = 0.0
        self._threads = [
            Thread(target=self._work, name=f"translate {model} {number}", daemon=True)
            for number in range(limits.parallel)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queue_length(self) -> int:
        """Number of sentences that wait."""
        with self._changed:
            return sum(ticket.waiting for ticket in self._tickets)

    def admit(self, count: int, seconds: float = math.inf) -> Ticket:
        """Let a request into the queue, before the work of preparing its sentences.

        Args:
            count: approximate number of the sentences.
            seconds: time within which their translations are needed.

        Raises:
            QueueFullError: too many sentences wait, or they would wait for too much of their time.
        """
        most = self._limits.max_sentences
        with self._changed:
            held = sum(min(ticket.held, most) for ticket in self._tickets)
            if not held:
                self._busy_since = time.monotonic()
            is_queue = held > most // 4  # fewer are translated together
            expected = held / self._rate if self._rate and is_queue else 0.0
            if held >= self._limits.max_queue or expected > WAIT_SHARE * seconds:
                waiting = sum(ticket.held for ticket in self._tickets)
                raise QueueFullError(min(60, max(1, round(waiting / self._rate))) if self._rate else 1)
            ticket = Ticket(min(count, most))
            self._tickets.append(ticket)
        return ticket

    def submit(
        self, sentences: Sequence[str], setting: Setting, ticket: Ticket | None = None
    ) -> Future[list[Translation]]:
        """Queue sentences.

        Args:
            sentences: sentences to translate.
            setting: how to translate them.
            ticket: what :meth:`admit` returned, which it is called for otherwise.

        Returns:
            Their translations, in order; sentences that cannot be translated have an error. If it is canceled,
            sentences that still wait are dropped, and those being translated are given up.

        Raises:
            QueueFullError: too many sentences wait.
            ClosedError: :meth:`close` was called.
        """
        ticket = ticket or self.admit(len(sentences))
        with self._changed:
            if self._is_closed:
                raise ClosedError("The server is shutting down.")
            ticket.sentences, ticket.setting = sentences, setting
            if not sentences:
                ticket.future.set_result([])
            self._changed.notify_all()
            self._measure()
        return ticket.future

    def close(self) -> None:
        """Finish what is queued, and end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _measure(self) -> None:
        _call(self._watch, sum(ticket.waiting for ticket in self._tickets))

    def _work(self) -> None:
        while batch := self._take():
            self._translate(batch)
            with self._changed:
                previous, self._ended = max(self._ended, self._busy_since), time.monotonic()
                rate = sum(len(part) for _, part in batch) / max(self._ended - previous, 1e-6)
                self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate

    def _take(self) -> list[Part]:
        """Wait for sentences and take a batch with the setting of the oldest; empty after the last one."""
        with self._changed:
            while True:
                self._tickets = deque(ticket for ticket in self._tickets if ticket.held)
                if self._has_sentences():
                    batch = self._parts()
                    self._is_shared = len(batch) > 1
                    self._measure()
                    return batch
                self._measure()
                if self._is_closed:
                    return []
                self._changed.wait_for(lambda: self._has_sentences() or self._is_closed)
                if self._is_shared:
                    self._changed.wait_for(self._has_batch, timeout=self._limits.delay)

    def _has_sentences(self) -> bool:
        return any(ticket.waiting for ticket in self._tickets)

    def _has_batch(self) -> bool:
        return self._is_closed or sum(ticket.waiting for ticket in self._tickets) >= self._limits.max_sentences

    def _parts(self) -> list[Part]:
        """Take sentences in turn from all tickets of one setting, so that a long request does not hold up short ones.
        Long requests then wait behind those of other settings."""
        ready = [ticket for ticket in self._tickets if ticket.waiting]
        turns = deque(ticket for ticket in ready if ticket.setting == ready[0].setting)
        first: dict[Ticket, int] = {}
        count = characters = 0
        while turns and count < self._limits.max_sentences:
            ticket = turns.popleft()
            sentence = ticket.sentences[ticket.taken]
            if count and characters + len(sentence) > self._limits.max_characters:
                break
            first.setdefault(ticket, ticket.taken)
            ticket.taken += 1
            count, characters = count + 1, characters + len(sentence)
            if ticket.taken < len(ticket.sentences):
                turns.append(ticket)
        rest = [ticket for ticket in self._tickets if ticket.held]
        self._tickets = deque(sorted(rest, key=lambda ticket: ticket in first))  # stable: those served go to the end
        return [(ticket, range(start, ticket.taken)) for ticket, start in first.items()]

    def _translate(self, batch: Sequence[Part]) -> None:
        """Translate a batch; if that fails, each request alone, so that no request fails because of another. Requests
        that nobody waits for any more leave it at the next step."""
        setting, began = batch[0][0].setting, time.monotonic()
        assert setting is not None
        try:
            results = setting.translator.with_languages(setting.source, setting.target).translate(
                [ticket.sentences[at] for ticket, part in batch for at in part],
                setting.decoding,
                cancel=[ticket.future.done for ticket, part in batch for _ in part],
                on_error="return",
            )
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._translate([each])
            else:
                with suppress(InvalidStateError):
                    batch[0][0].future.set_exception(error)
            return
        seconds, remaining = time.monotonic() - began, iter(results)
        for ticket, part in batch:
            with self._changed:  # another thread may have the rest of the request
                ticket.done.update((at, next(remaining)) for at in part)
                is_complete = len(ticket.done) == len(ticket.sentences)
            if is_complete:
                with suppress(InvalidStateError):  # canceled in the meantime
                    ticket.future.set_result([ticket.done[at] for at in range(len(ticket.sentences))])
        report = BatchReport(
            self._model,
            len(results),
            len(batch),
            sum(len(result.source.ids) for result in results),
            sum(len(hypothesis.ids) for result in results for hypothesis in result.hypotheses),
            seconds,
            began - min(ticket.arrived for ticket, _ in batch),
        )
        _call(self._report, report)


def _call(measure: Callable[[Measured], object], value: Measured) -> None:
    """Measure something. If that fails, the thread still has sentences to translate."""
    try:
        measure(value)
    except Exception as error:
        fields = {"error": type(error).__name__}
        logging.getLogger("edgeformer.serve").error("not measured", extra={"fields": fields})
