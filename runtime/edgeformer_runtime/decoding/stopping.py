"""What ends a translation before it is complete: a caller that does not want it any more, or a deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from edgeformer_runtime.errors import CanceledError, OptionError, StoppedError, TimedOutError

Cancel = Callable[[], bool]
"""Tells whether a translation is not wanted any more, such as :meth:`threading.Event.is_set`."""


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
        self._cancel = cancel
        self._deadline = math.inf if timeout is None else time.monotonic() + timeout
        self.error: StoppedError | None = None
        """Why the sentence was given up; ``None`` if it was not."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; ``None`` if there is none."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def is_canceled(self) -> bool:
        """Whether the sentence is not wanted any more, whatever its deadline."""
        return self._cancel is not None and self._cancel()

    def is_set(self) -> bool:
        """Whether the sentence has to be given up."""
        if self.error is None:
            if self.is_canceled():
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
            raise self.error
