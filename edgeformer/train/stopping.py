"""Reasons to stop training: a limit of the recipe, or a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from edgeformer.config import TrainConfig
from edgeformer.run.info import Validation
from edgeformer.train.averaging import best_steps

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class TrainingLimit:
    """A limit of the recipe's section ``[train]`` was reached."""

    key: Literal["max_steps", "max_minutes", "patience"]
    """Key of the limit."""
    value: int | float
    """Its value."""

    def __str__(self) -> str:
        return f"{self.key} = {self.value:g}" if isinstance(self.value, float) else f"{self.key} = {self.value}"


@dataclass(frozen=True)
class Interruption:
    """A signal asked the process to end. Training is not finished and can be resumed."""

    signal: signal.Signals
    """SIGINT or SIGTERM."""

    def __str__(self) -> str:
        return self.signal.name


StopReason = TrainingLimit | Interruption


def limit_reached(
    config: TrainConfig, step: int, minutes: float, validations: Sequence[Validation]
) -> TrainingLimit | None:
    """Return the limit that ends a training after so many updates and minutes and these validations, or ``None``."""
    if step >= config.max_steps:
        return TrainingLimit("max_steps", config.max_steps)
    if config.max_minutes is not None and minutes >= config.max_minutes:
        return TrainingLimit("max_minutes", config.max_minutes)
    if config.patience and validations:
        best = best_steps(validations, 1)[0]
        if sum(validation.step > best for validation in validations) >= config.patience:
            return TrainingLimit("patience", config.patience)
    return None


class SignalWatch:
    """Remembers the last SIGINT or SIGTERM."""

    received: Interruption | None = None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal; from now on, SIGINT interrupts at once."""
        self.received = Interruption(signal.Signals(number))
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def catch_signals() -> Iterator[SignalWatch]:
    """Note SIGINT and SIGTERM instead of ending the process, so that the running update can finish.

    A second SIGINT interrupts at once. Outside the main thread, where Python cannot set handlers, nothing is caught.
    """
    watch = SignalWatch()
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    previous = {number: signal.signal(number, watch.handle) for number in _SIGNALS}
    try:
        yield watch
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
