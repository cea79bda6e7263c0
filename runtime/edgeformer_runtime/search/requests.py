"""Sentences to decode, with what their outputs begin with, how long they may be and what gives them up; and batches of
them, of similar length and limited in size."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ParamSpec, TypeVar

import numpy as np

from edgeformer_runtime.errors import CanceledError, InputError, OptionError, StoppedError, TimedOutError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import IntArray, StepSession

MAX_ROWS = 128
"""Maximum number of rows in a step (sentences times beams): more rows take more memory, mostly for logits, but save no
time."""
Cancel = Callable[[], bool]
"""Tells whether a translation is not wanted any more, such as :meth:`threading.Event.is_set`."""
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Stop:
    """Asked before every decoder step whether a sentence has to be given up. Once it says so, it keeps saying so.

    Args:
        cancel: tells whether the sentence is not wanted any more; ``None`` if it always is.
        timeout: seconds from now within which it is wanted; ``None`` means no limit.

    Raises:
        OptionError: an argument is of another type, or ``timeout`` is negative.
    """

    def __init__(self, cancel: Cancel | None = None, timeout: float | None = None) -> None:
        if cancel is not None and not callable(cancel):
            raise OptionError(f"`cancel` must be a function without arguments, or a list of them, but is {cancel!r}.")
        if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
            raise OptionError(f"`timeout` must be a number of seconds, at least 0, but is {timeout!r}.")
        self.cancel = cancel
        """Tells whether the sentence is not wanted any more, whatever its deadline; ``None`` if it always is."""
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.error: StoppedError | None = None
        """Why the sentence was given up; ``None`` if it was not."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; ``None`` if there is none."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def is_set(self) -> bool:
        """Whether the sentence has to be given up."""
        if self.error is None:
            if self.cancel is not None and self.cancel():
                self.error = CanceledError("The translation was canceled.")
            elif time.monotonic() >= self._deadline:
                self.error = TimedOutError(
                    "The translation took longer than its `timeout`; allow more time, or translate less text at a time."
                )
        return self.error is not None

    def check(self) -> None:
        """Raise the error if the sentence has to be given up.

        Raises:
            CanceledError: it is not wanted any more.
            TimedOutError: its deadline has passed.
        """
        if self.is_set() and self.error is not None:
            raise copy(self.error)  # with its traceback, this would hold the frames that hold this


def stops_of(
    cancel: Cancel | Sequence[Cancel | None] | None, timeout: float | None, count: int
) -> Sequence[Stop | None]:
    """Return what gives each of some texts up; see :meth:`~edgeformer_runtime.translator.Translator.translate`.

    Raises:
        OptionError: an argument is of another type, or there is not one function per text.
    """
    if cancel is None and timeout is None:
        return [None] * count
    if cancel is None or callable(cancel):
        return [Stop(cancel, timeout)] * count
    if isinstance(cancel, Sequence) and len(cancel) == count:
        return [Stop(each, timeout) for each in cancel]
    raise OptionError(f"`cancel` must be a function, or a list with one per text, but is {cancel!r}.")


async def in_thread(
    translate: Callable[Parameters, Result], /, *arguments: Parameters.args, **settings: Parameters.kwargs
) -> Result:
    """Call a method that translates in a thread, and stop it within a decoder step if the task is canceled.

    >>> async def greet(translator: Translator) -> list[Translation]:
    ...     return await in_thread(translator.translate, ["Hello."], timeout=2.0)

    Args:
        translate: ``translate`` of a :class:`Translator` or :class:`TextTranslator`, or another function that takes
            ``cancel``.
        arguments: its arguments.
        settings: its keyword arguments; ``cancel`` may be a function here.
    """
    import asyncio  # takes a tenth of the time in which a small model opens

    gone = threading.Event()
    named: dict[str, Any] = dict(settings)
    cancel = named.pop("cancel", None)
    stopped = gone.is_set if cancel is None else lambda: gone.is_set() or cancel()
    call: Callable[..., Result] = translate
    try:
        return await asyncio.to_thread(call, *arguments, cancel=stopped, **named)
    finally:
        gone.set()


@dataclass(frozen=True, kw_only=True)
class Request:
    """One sentence to decode."""

    source: Sequence[int]
    """Source ids, end token included."""
    prefix: tuple[int, ...] = ()
    """First tokens of the output, which are not searched for."""
    limit: int
    """Maximum number of output tokens, those of the prefix and the end token included; more than the prefix has."""
    log_probability: float | None = None
    """Log-probability of the last token of the prefix, if a search has found it; ``None`` if it was given."""
    sample: int = 0
    """Number of the sample, if tokens are sampled."""
    stop: Stop | None = None
    """What gives the sentence up before it is complete."""


def make_requests(
    session: StepSession,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None,
    options: DecodeOptions,
    stops: Sequence[Stop | None] | None = None,
) -> list[Request]:
    """Check options, and combine sources, prefixes and stops; see :func:`~edgeformer_runtime.search.loop.decode`.

    Returns:
        One request per sentence; if tokens are sampled, ``n_best`` per sentence, one after the other.

    Raises:
        InputError: a prefix leaves no room for another token.
        OptionError: an option is out of range.
        ValueError: there are more or fewer prefixes or stops than sources.
    """
    options.verify()
    if options.min_length > (longest := longest_target(session)):
        raise OptionError(
            f"`min_length` must be at most {longest}, as many tokens as the model writes, but is {options.min_length}."
        )
    requests: list[Request] = []
    prefixes = [()] * len(sources) if prefixes is None else prefixes
    stops = [None] * len(sources) if stops is None else stops
    most, samples = length_limit(session, options), options.n_best if options.is_sampling else 1
    for index, (source, prefix, stop) in enumerate(zip(sources, prefixes, stops, strict=True)):
        if prefix:
            check_prefix(index, prefix, most)
        limit = length_limit(session, options, len(source), len(prefix))
        requests += [
            Request(source=source, prefix=tuple(prefix), limit=limit, sample=sample, stop=stop)
            for sample in range(samples)
        ]
    return requests


def longest_target(session: StepSession) -> int:
    """Maximum number of tokens of a target, end token included, without those that every target begins with."""
    return session.max_target_length - len(session.special.prefix)


def length_limit(session: StepSession, options: DecodeOptions, source: int | None = None, prefix: int = 0) -> int:
    """Return the maximum number of output tokens, end token included.

    Args:
        session: the model.
        options: how to search.
        source: number of source tokens, on which the limit may depend; ``None`` for sources of any length.
        prefix: number of tokens that the output begins with.
    """
    longest = longest_target(session)
    limit = min(options.max_length or longest, longest)
    if source is not None and (options.max_len_a or options.max_len_b):
        limit = min(limit, max(prefix + 1, int(options.max_len_a * source) + options.max_len_b))
    return limit


def check_prefix(index: int, prefix: Sequence[int], limit: int) -> None:
    """Check that a prefix leaves room for another token.

    Args:
        index: position of the text, for the error.
        prefix: token ids.
        limit: maximum number of output tokens.

    Raises:
        InputError: it does not.
    """
    if len(prefix) >= limit:
        raise InputError(
            index,
            f"has a target prefix of {len(prefix)} tokens, but a translation may have at most {limit} tokens, end "
            "token included; shorten the prefix, or raise `max_length` if it is set.",
        )


def request_batches(session: StepSession, requests: Sequence[Request], options: DecodeOptions) -> Iterator[list[int]]:
    """Group requests into batches whose prefixes have the same length, so that their search begins together.

    Yields:
        Indices of the requests in each batch, longest source first.
    """

    def prefix_length(index: int) -> int:
        return len(requests[index].prefix)

    for _, group in groupby(sorted(range(len(requests)), key=prefix_length), prefix_length):
        indices = list(group)
        lengths = [len(requests[index].source) for index in indices]
        if options.beam_size == 1:
            batches = single_row_batches(session, lengths, options.max_batch_tokens)
        else:
            batches = length_sorted_batches(lengths, options.beam_size, options.max_batch_tokens)
        for batch in batches:
            yield [indices[place] for place in batch]


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
