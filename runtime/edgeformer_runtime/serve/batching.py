"""Dynamic batching: sentences of concurrent requests are translated together, in threads of each model.

A sentence gets the same translation in any batch, so that requests do not notice each other.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Condition, Thread

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.translator import Translation, Translator
from edgeformer_runtime.workspace.workspace import Workspace

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


@dataclass(frozen=True)
class BatchLimits:
    """When a batch is full, and when a queue is."""

    max_sentences: int = 64
    """Sentences of a batch, which the translator divides further by their length in tokens."""
    max_characters: int = 16384
    """Characters of a batch; a longer sentence is a batch of its own."""
    delay: float = 0.002
    """Seconds that the first sentence of an idle model waits for others, if the last batch was of several requests."""
    parallel: int = 1
    """Batches that a model translates at a time, sharing its weights."""
    max_queue: int = 2048
    """Sentences that may wait; a request is refused if there are as many when it comes, or if it would have to wait for
    too long. As requests take turns, one counts as no more than a batch, so that a long text does not shut out
    others."""


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
class _Ticket:
    """The sentences of a request and the translations there are so far."""

    sentences: Sequence[str]
    setting: Setting
    future: Future[list[Translation]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    taken: int = 0
    done: dict[int, Translation] = field(default_factory=dict)
    """Translations by the position of the sentence."""

    @property
    def waiting(self) -> int:
        return 0 if self.future.done() else len(self.sentences) - self.taken


class Place:
    """A place in a queue for sentences that are still being prepared. Use :meth:`Batcher.place`."""

    def __init__(self, batcher: Batcher, held: int) -> None:
        self._batcher, self.held = batcher, held

    def submit(self, sentences: Sequence[str], setting: Setting) -> Future[list[Translation]]:
        """Queue the sentences; see :meth:`Batcher.submit`.

        Raises:
            ClosedError: :meth:`Batcher.close` was called.
        """
        return self._batcher.queue(self, sentences, setting)


Part = tuple[_Ticket, range]
"""Positions of successive sentences of one ticket within a batch."""


class Batcher:
    """A model's queue and the threads that empty it.

    Args:
        workspace: where the model is.
        model: its name.
        limits: sizes of batches and of the queue.
        report: called after each batch, in one of the model's threads.
    """

    def __init__(
        self,
        workspace: Workspace,
        model: str,
        limits: BatchLimits = BatchLimits(),  # immutable
        report: Callable[[BatchReport], object] = lambda report: None,
    ) -> None:
        self._workspace, self._model, self._limits, self._report = workspace, model, limits, report
        self._tickets: deque[_Ticket] = deque()
        self._changed = Condition()
        self._is_closed = False
        self._is_shared = True
        """Whether the last batch was of several requests."""
        self._coming = 0
        """Sentences that have a place, but are not there yet."""
        self._rate = 0.0
        """Sentences per second while there were any, from their places in the queue to their translations; smoothed."""
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

    @contextmanager
    def place(self, count: int, seconds: float = math.inf) -> Iterator[Place]:
        """Take a place in the queue, before the work of preparing sentences.

        Args:
            count: approximate number of the sentences.
            seconds: time within which their translations are needed.

        Raises:
            QueueFullError: too many sentences wait, or they would wait for too much of their time.
        """
        with self._changed:
            waiting = sum(ticket.waiting for ticket in self._tickets) + self._coming
            held = sum(min(ticket.waiting, self._limits.max_sentences) for ticket in self._tickets) + self._coming
            if not held:
                self._busy_since = time.monotonic()
            is_queue = held > self._limits.max_sentences // 4  # fewer are translated together
            expected = held / self._rate if self._rate and is_queue else 0.0
            if held >= self._limits.max_queue or expected > WAIT_SHARE * seconds:
                raise QueueFullError(min(60, max(1, round(waiting / self._rate))) if self._rate else 1)
            place = Place(self, min(count, self._limits.max_sentences))
            self._coming += place.held
        try:
            yield place
        finally:
            with self._changed:
                self._leave(place)

    def submit(self, sentences: Sequence[str], setting: Setting) -> Future[list[Translation]]:
        """Queue sentences.

        Returns:
            Their translations, in order; sentences that cannot be translated have an error. If it is canceled,
            sentences that still wait are dropped.

        Raises:
            QueueFullError: too many sentences wait.
            ClosedError: :meth:`close` was called.
        """
        with self.place(len(sentences)) as place:
            return place.submit(sentences, setting)

    def queue(self, place: Place, sentences: Sequence[str], setting: Setting) -> Future[list[Translation]]:
        """Queue sentences that have a place; see :meth:`submit`."""
        ticket = _Ticket(sentences, setting)
        with self._changed:
            self._leave(place)
            if self._is_closed:
                raise ClosedError("The server is shutting down.")
            if sentences:
                self._tickets.append(ticket)
                self._changed.notify_all()
            else:
                ticket.future.set_result([])
        return ticket.future

    def _leave(self, place: Place) -> None:
        self._coming, place.held = self._coming - place.held, 0

    def close(self) -> None:
        """Finish what is queued, and end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while batch := self._take():
            sentences = sum(len(part) for _, part in batch)
            self._translate(batch)
            with self._changed:
                previous, self._ended = max(self._ended, self._busy_since), time.monotonic()
                rate = sentences / max(self._ended - previous, 1e-6)
                self._rate = 0.8 * self._rate + 0.2 * rate if self._rate else rate

    def _take(self) -> list[Part]:
        """Wait for sentences and take a batch with the setting of the oldest; empty after the last one."""
        with self._changed:
            while True:
                self._tickets = deque(ticket for ticket in self._tickets if ticket.waiting)
                if self._tickets:
                    batch = self._parts()
                    self._is_shared = len(batch) > 1
                    return batch
                if self._is_closed:
                    return []
                self._changed.wait_for(lambda: self._tickets or self._is_closed)
                if self._is_shared:
                    self._changed.wait_for(self._has_batch, timeout=self._limits.delay)

    def _has_batch(self) -> bool:
        return self._is_closed or sum(ticket.waiting for ticket in self._tickets) >= self._limits.max_sentences

    def _parts(self) -> list[Part]:
        """Take sentences in turn from all tickets of one setting, so that a long request does not hold up short ones.
        Long requests then wait behind those of other settings."""
        setting = self._tickets[0].setting
        turns = deque(ticket for ticket in self._tickets if ticket.setting == setting)
        first: dict[_Ticket, int] = {}
        count = characters = 0
        while turns and count < self._limits.max_sentences and characters < self._limits.max_characters:
            ticket = turns.popleft()
            sentence = ticket.sentences[ticket.taken]
            if count and characters + len(sentence) > self._limits.max_characters:
                break
            first.setdefault(ticket, ticket.taken)
            ticket.taken += 1
            count, characters = count + 1, characters + len(sentence)
            if ticket.taken < len(ticket.sentences):
                turns.append(ticket)
        rest = [ticket for ticket in self._tickets if ticket.taken < len(ticket.sentences)]
        self._tickets = deque(sorted(rest, key=lambda ticket: ticket in first))  # stable: those served go to the end
        return [(ticket, range(start, ticket.taken)) for ticket, start in first.items()]

    def _translate(self, batch: Sequence[Part]) -> None:
        """Translate a batch; if that fails, each request alone, so that no request fails because of another."""
        began = time.monotonic()
        try:
            results = self._translations(batch[0][0].setting, [t.sentences[at] for t, part in batch for at in part])
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._translate([each])
            else:
                with suppress(InvalidStateError):
                    batch[0][0].future.set_exception(error)
            return
        sizes = [(len(result.source.ids), sum(len(h.ids) for h in result.hypotheses)) for result in results]
        source_tokens, target_tokens = (sum(column) for column in zip(*sizes, strict=True))
        waited = began - min(ticket.arrived for ticket, _ in batch)
        seconds = time.monotonic() - began
        self._report(BatchReport(self._model, len(results), len(batch), source_tokens, target_tokens, seconds, waited))
        remaining = iter(results)
        for ticket, part in batch:
            with self._changed:  # another thread may have the rest of the request
                ticket.done.update((at, next(remaining)) for at in part)
                is_complete = len(ticket.done) == len(ticket.sentences)
            if is_complete:
                with suppress(InvalidStateError):  # canceled in the meantime
                    ticket.future.set_result([ticket.done[at] for at in range(len(ticket.sentences))])

    def _translations(self, setting: Setting, sentences: Sequence[str]) -> list[Translation]:
        with self._workspace.lease_again(setting.translator):  # in case all who wait for this are canceled meanwhile
            view = setting.translator.with_languages(setting.source, setting.target)
            return view.translate(sentences, setting.decoding, on_error="return")
