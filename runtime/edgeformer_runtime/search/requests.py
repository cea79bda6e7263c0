"""Sentences to decode: the source of each, the prefix and the maximum length of its output, and what gives it up."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ParamSpec, TypeVar

from edgeformer_runtime.errors import CanceledError, InputError, OptionError, StoppedError, TimedOutError
from edgeformer_runtime.search.batching import length_sorted_batches, single_row_batches
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import StepSession, longest_target

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
    for index, (source, prefix, stop) in enumerate(zip(sources, prefixes, stops, strict=True)):
        check_prefix(index, prefix, length_limit(session, options))
        limit = length_limit(session, options, len(source), len(prefix))
        samples = options.n_best if options.is_sampling else 1
        requests += [
            Request(source=source, prefix=tuple(prefix), limit=limit, sample=sample, stop=stop)
            for sample in range(samples)
        ]
    return requests


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
