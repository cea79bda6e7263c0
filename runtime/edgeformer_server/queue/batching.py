"""Dynamic batching: sentences of concurrent requests are translated together, in threads that all models share.

A sentence gets the same translation in any batch, so that requests do not notice each other. Nor do they wait for each
other for long, whatever their sentences are:

1. Batches in progress take turns of :data:`TURN` seconds, or one decoder step. Between them, others go on, and a new
   one begins if shorter sentences of other requests wait, or any after :data:`PATIENCE` rows of steps.
2. A batch has at most as many rows as the decoder takes at a time, and at most half of the positions (see
   :func:`most_positions`) that those in progress leave of ``max_positions``, so that there is room for another one.
3. A sentence is translated when its search ends, not when its batch does.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Condition
from typing import Self

from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import MAX_ROWS, length_limit
from edgeformer_runtime.translation import Source, Translation
from edgeformer_runtime.translator import Translator
from edgeformer_server.queue.fair_semaphore import FairSemaphore
from edgeformer_server.settings import BatchLimits

TURN = 0.01
"""Seconds after which a batch lets others go on: a step or two of a large one, or all of a few short sentences."""
PATIENCE = 512
"""Rows of decoder steps after which similar sentences no longer wait for a batch to end, but begin beside it: all steps
of 16 short sentences. Under load, batches are therefore as large as they can be."""
ALIKE = 2
"""Sentences are translated together if none may take more than this many times the positions of another, so that a
short one does not step as slowly as long ones do."""
MAX_BATCHES = 6
"""Batches in progress for each that is translated at a time."""

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
class BatchSettings:
    """Model, languages and options, which the sentences of one batch share."""

    translator: Translator
    """The model, which whoever submits sentences leases until they are translated."""
    source: str
    target: str
    decoding: DecodeOptions


@dataclass(frozen=True)
class BatchReport:
    """Sizes and times of one batch, for measurements."""

    model: str
    sentences: int
    requests: int
    source_tokens: int
    target_tokens: int
    seconds: float
    waited: float
    """Seconds that the oldest request of the batch waited."""


@dataclass(eq=False)
class Submission:
    """Sentences of a request that are translated together, and what has become of them."""

    sentences: Sequence[Source]
    setting: BatchSettings
    positions: Sequence[int]
    """The most positions that each sentence may take."""
    future: Future[list[Translation]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)
    taken: int = 0
    """Number of sentences that are in batches or translated; the others wait."""
    batches: int = 0
    """Number of batches in progress that have some of the sentences."""
    done: dict[int, Translation] = field(default_factory=dict)
    """Translations by the position of the sentence."""

    @property
    def waiting(self) -> int:
        """Number of sentences that wait."""
        return len(self.sentences) - self.taken


class Ticket:
    """The place of a request in a queue, from before its sentences are known until it is answered. Leaving its ``with``
    statement gives up what is not translated yet.

    Args:
        queue: the queue.
        expected: approximate number of sentences.
    """

    def __init__(self, queue: Batcher, expected: int) -> None:
        self._queue, self._expected = queue, expected
        self.submission: Submission | None = None
        """What was submitted last; ``None`` until the sentences are known."""

    @property
    def waiting(self) -> int:
        """Number of sentences that wait, as far as they are known."""
        return self.submission.waiting if self.submission else 0

    @property
    def held(self) -> int:
        """Number of sentences that wait or are expected."""
        return self.submission.waiting if self.submission else self._expected

    def submit(self, sentences: Sequence[Source], setting: BatchSettings) -> Future[list[Translation]]:
        """Queue sentences; further ones when these are translated.

        Args:
            sentences: sentences to translate, with their token ids.
            setting: how to translate them.

        Returns:
            Their translations, in order: ids, scores and, where wanted, attention; sentences that cannot be translated
            have an error. If it is canceled, as it is
            when the request leaves the queue, sentences that still wait are dropped, and those being translated are
            given up.

        Raises:
            ClosedError: the queue is closed.
        """
        positions = most_positions(setting.translator, sentences, setting.decoding)
        return self._queue.begin(self, Submission(sentences, setting, positions))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.leave(self)


Part = tuple[Submission, range]
"""Positions of successive sentences of one request within a batch."""


@dataclass(eq=False)
class Batch:
    """A batch in progress."""

    parts: Sequence[Part]
    spent: int = 0
    """Rows of its decoder steps so far."""
    turn_began: float = field(default_factory=time.monotonic)

    @cached_property
    def positions(self) -> list[int]:
        """The most positions that each of its sentences may take."""
        return [submission.positions[index] for submission, part in self.parts for index in part]


class Batcher:
    """A model's queue, and the work that empties it.

    Args:
        model: its name.
        limits: sizes of batches and of the queue.
        report: called after each batch, in one of the threads.
        threads: threads that may be shared with other models; its own by default.
    """

    def __init__(
        self,
        model: str,
        limits: BatchLimits = BatchLimits(),  # noqa: B008, is frozen
        report: Callable[[BatchReport], object] = lambda report: None,
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        self._model, self._limits, self._report = model, limits, report
        self._tickets: dict[Ticket, None] = {}
        """Requests in the order of their turns."""
        self._changed = Condition()
        self._is_closed = False
        self._is_shared = True
        """Whether the last batch was of several requests."""
        self._semaphore = FairSemaphore(limits.parallel)
        self._begun: list[Batch] = []
        """Batches in progress."""
        self._is_beginning = False
        """Whether a thread is about to begin a batch; one at a time, so that all sentences that wait are in it."""
        self._done = self._busy = 0.0
        """Sentences, and seconds while there were any, from :meth:`admit` to their translations; recent ones count
        more."""
        self._busy_since = 0.0
        self._most_begun = MAX_BATCHES * limits.parallel
        self._threads = threads or ThreadPoolExecutor(self._most_begun, f"translate {model}")

    @property
    def queue_length(self) -> int:
        """Number of sentences that wait."""
        with self._changed:
            return self._waiting()

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
            sizes = [ticket.held for ticket in self._tickets]
            held = sum(min(size, most) for size in sizes)
            if not held and not self._begun:
                self._busy_since = time.monotonic()
            is_queue = held > most // 4  # fewer are translated together
            each = self._busy / self._done if self._done else 0.0
            before = sum(min(size, count) for size in sizes)  # since requests take turns
            if held >= self._limits.max_queue or (is_queue and before * each > WAIT_SHARE * seconds):
                raise QueueFullError(min(60, max(1, round(sum(sizes) * each))))
            ticket = Ticket(self, min(count, most))
            self._tickets[ticket] = None
            return ticket

    def begin(self, ticket: Ticket, submission: Submission) -> Future[list[Translation]]:
        """Queue what a request submits, unless it has left; see :meth:`Ticket.submit`."""
        with self._changed:
            if self._is_closed:
                raise ClosedError("The server is shutting down.")
            ticket.submission = submission
            if ticket not in self._tickets:
                submission.future.cancel()
            elif not submission.sentences:
                submission.future.set_result([])
            self._begin_soon()
        return submission.future

    def leave(self, ticket: Ticket) -> None:
        """Forget a request, and what still waits of it."""
        with self._changed:
            self._tickets.pop(ticket, None)
            if ticket.submission is not None:
                ticket.submission.future.cancel()
            self._changed.notify_all()

    def close(self) -> None:
        """Finish what is queued."""
        with self._changed:
            self._is_closed = True
            self._begin_soon()
            self._changed.wait_for(lambda: not (self._is_beginning or self._begun or self._waiting()))

    def _waiting(self) -> int:
        return sum(ticket.waiting for ticket in self._tickets)

    def _begin_soon(self) -> None:
        """Have a thread begin a batch if one can begin. The lock must be held, after whatever may let one begin."""
        self._changed.notify_all()
        if not self._is_beginning and len(self._begun) < self._most_begun and self._ready():
            with suppress(RuntimeError):  # if no further thread can start, one of the others takes what was submitted
                self._threads.submit(self._work)
                self._is_beginning = True

    def _work(self) -> None:
        """Take a turn and a batch, and translate it."""
        self._semaphore.acquire(first=True)
        with self._changed:
            if self._is_shared and not self._begun:
                self._changed.wait_for(self._is_full, timeout=self._limits.delay)
            self._is_beginning, ready = False, self._ready()
            if not ready:  # they were given up meanwhile
                self._semaphore.release()
                self._changed.notify_all()
                return
            batch = Batch(self._parts(ready))
            self._is_shared = len(batch.parts) > 1
            self._begun.append(batch)
            for submission, _ in batch.parts:
                submission.batches += 1
            self._begin_soon()
        try:
            self._translate(batch)
        finally:
            self._end(batch)

    def _is_full(self) -> bool:
        return self._is_closed or self._waiting() >= self._limits.max_sentences

    def _end(self, batch: Batch) -> None:
        """End a batch, and count its sentences and its time, but not the time that others have counted before."""
        self._semaphore.release()
        with self._changed:
            self._begun.remove(batch)
            for submission, _ in batch.parts:
                submission.batches -= 1
            since, self._busy_since = self._busy_since, time.monotonic()
            self._done = 0.8 * self._done + len(batch.positions)
            self._busy = 0.8 * self._busy + self._busy_since - since
            self._begin_soon()

    def _ready(self) -> list[Submission]:
        """What can begin a batch, of one setting, in the order of its turns."""
        waiting = [each for ticket in self._tickets if (each := ticket.submission) and each.waiting]
        if not waiting:
            return []
        room = self._room()
        shortest = min((min(batch.positions) for batch in self._begun if batch.spent < PATIENCE), default=math.inf)

        def may_begin(submission: Submission) -> bool:
            needed = submission.positions[submission.taken]
            if not self._begun:
                return True
            if len(self._begun) < self._limits.parallel:
                return needed <= room
            return needed <= room and not submission.batches and ALIKE * needed < shortest

        ready = [submission for submission in waiting if may_begin(submission)]
        return [submission for submission in ready if submission.setting == ready[0].setting]

    def _room(self) -> int:
        """Positions that a batch may take."""
        return (self._limits.max_positions - sum(sum(batch.positions) for batch in self._begun)) // 2

    def _parts(self, ready: Sequence[Submission]) -> list[Part]:
        """Take sentences in turn from all that are :meth:`_ready`, so that a long request does not hold up short ones.
        Long requests then wait behind those of other settings."""
        turns, room = deque(ready), self._room()
        most = min(self._limits.max_sentences, max(1, MAX_ROWS // ready[0].setting.decoding.rows))
        least = largest = ready[0].positions[ready[0].taken]
        first: dict[Submission, int] = {}
        count = 0
        while turns and count < most:
            submission = turns.popleft()
            needed = submission.positions[submission.taken]
            if max(largest, needed) > ALIKE * min(least, needed):
                continue
            if count and needed > room:
                break
            least, largest = min(least, needed), max(largest, needed)
            first.setdefault(submission, submission.taken)
            submission.taken += 1
            count, room = count + 1, room - needed
            if submission.waiting:
                turns.append(submission)
        for ticket in [each for each in self._tickets if each.submission in first]:  # their turns are the last now
            self._tickets[ticket] = self._tickets.pop(ticket)
        return [(submission, range(start, submission.taken)) for submission, start in first.items()]

    def _translate(self, batch: Batch) -> None:
        """Translate a batch; if that fails, each request alone, so that no request fails because of another. Requests
        that nobody waits for any more leave it at the next step."""
        setting, began = batch.parts[0][0].setting, time.monotonic()
        owners = [(submission, index) for submission, part in batch.parts for index in part]
        try:
            results = setting.translator.with_languages(setting.source, setting.target).translate(
                [submission.sentences[index] for submission, index in owners],
                replace(setting.decoding, max_batch_tokens=self._limits.max_positions),
                cancel=[partial(self._is_gone, submission, batch, setting.decoding.rows) for submission, _ in owners],
                done=lambda index, translation: self._add(*owners[index], translation),
                on_error="return",
            )
        except Exception as error:
            if len(batch.parts) > 1:
                for each in batch.parts:
                    self._translate(replace(batch, parts=[each]))
            else:
                with suppress(InvalidStateError):
                    batch.parts[0][0].future.set_exception(error)
            return
        for owner, result in zip(owners, results, strict=True):
            self._add(*owner, result)
        self._report(
            BatchReport(
                self._model,
                len(results),
                len(batch.parts),
                sum(len(result.source.ids) for result in results),
                sum(len(hypothesis.ids) for result in results for hypothesis in result.hypotheses),
                time.monotonic() - began,
                began - min(submission.arrived for submission, _ in batch.parts),
            )
        )

    def _is_gone(self, submission: Submission, batch: Batch, rows: int) -> bool:
        """Whether nobody waits for a sentence any more, asked before each of its steps; others go on after a turn."""
        before, batch.spent = batch.spent, batch.spent + rows
        if before < PATIENCE <= batch.spent:
            with self._changed:
                self._begin_soon()
        if time.monotonic() - batch.turn_began >= TURN:
            self._semaphore.give_way()
            batch.turn_began = time.monotonic()
        return submission.future.done()

    def _add(self, submission: Submission, index: int, translation: Translation) -> None:
        """Add a translation to a request, which may have it already."""
        with self._changed:  # another thread may have the rest of the request
            submission.done[index] = translation
            is_complete = len(submission.done) == len(submission.sentences)
        if is_complete:
            with suppress(InvalidStateError):  # canceled in the meantime
                submission.future.set_result([submission.done[index] for index in range(len(submission.sentences))])


def most_positions(translator: Translator, sentences: Sequence[Source], options: DecodeOptions) -> list[int]:
    """The most positions that each sentence may take in encoder and decoder: :attr:`DecodeOptions.rows` for each source
    token and each token that may be written."""
    most = translator.session.max_source_length
    counts = [len(sentence.ids) for sentence in sentences]
    return [options.rows * (min(count, most) + length_limit(translator.session, options, count)) for count in counts]
