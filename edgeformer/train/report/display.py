"""The progress of a training on the console: a progress bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from edgeformer.config import TrainConfig
from edgeformer.run.info import Validation
from edgeformer.train.stopping import TrainingLimit

LINE_SECONDS = 15.0
"""Minimum time between two lines where there is no terminal."""


class TrainingDisplay:
    """The progress of a training, as shown to a person."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._limits = TrainConfig()
        self._bar: Progress | None = None
        self._last_line = time.monotonic()

    @contextmanager
    def bar(self, step: int, limits: TrainConfig) -> Iterator[None]:
        """Show the progress to some limits within the block, as a bar if the console is a terminal."""
        self._limits = limits
        if not self._console.is_terminal or self._console.quiet:
            yield
            return
        columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._bar.add_task("", total=self._limits.max_steps, completed=step)
            try:
                yield
            finally:
                self._bar = None

    def update(
        self, step: int, *, loss: float, tokens_per_second: float, steps_per_second: float, minutes: float
    ) -> None:
        """Show the figures of the latest updates."""
        seconds_left = (self._limits.max_steps - step) / steps_per_second
        if self._limits.max_minutes is not None:
            seconds_left = min(seconds_left, 60 * (self._limits.max_minutes - minutes))
        text = f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  {_duration(seconds_left)} left"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, description=text)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self.line(f"step {step}/{self._limits.max_steps}  {text}")

    def validated(self, validation: Validation, *, is_best: bool) -> None:
        """Print the figures of a validation."""
        self.line(f"step {validation.step}  {_figures(validation)}{'  best' if is_best else ''}")

    def final(self, validation: Validation, steps: Sequence[int]) -> None:
        """Print the figures of the final model, a checkpoint or the mean of several."""
        of = f"step {steps[0]:,}" if len(steps) == 1 else f"mean of steps {', '.join(map(str, steps))}"
        self.line(f"final model, {of}: {_figures(validation)}")

    def nothing_left(self, limit: TrainingLimit, steps: int) -> None:
        """Say that a finished run is left as it is."""
        self.line(
            f"There is nothing to do: {limit} was reached after {steps:,} steps. "
            f"To continue, raise it with --set train.{limit.key}=VALUE."
        )

    def line(self, text: str) -> None:
        """Print one line above the bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _figures(validation: Validation) -> str:
    """Return the figures of a validation as one line of text."""
    return (
        f"valid loss {validation.loss:.4f}  perplexity {validation.perplexity:.2f}  BLEU {validation.bleu:.2f}  "
        f"exact {validation.exact_match:.1%}  {validation.minutes:.1f} min"
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
