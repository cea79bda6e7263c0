"""What a person sees while training: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from edgeformer.train.run import Validation

LINE_SECONDS = 15.0
"""Time between lines where there is no terminal."""


class Reporter:
    """Tells about the course of training on a console."""

    def __init__(self, console: Console, max_steps: int, max_minutes: float | None) -> None:
        self._console = console
        self._max_steps, self._max_minutes = max_steps, max_minutes
        self._bar: Progress | None = None
        self._last_line = time.monotonic()

    def start(self, step: int) -> None:
        """Show a bar if the console is a terminal."""
        if self._console.is_terminal and not self._console.quiet:
            columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._bar.add_task("", total=self._max_steps, completed=step)

    def update(
        self, step: int, *, loss: float, tokens_per_second: float, steps_per_second: float, minutes: float
    ) -> None:
        """Show the figures of the last updates."""
        seconds_left = (self._max_steps - step) / steps_per_second
        if self._max_minutes is not None:
            seconds_left = min(seconds_left, 60 * (self._max_minutes - minutes))
        figures = f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  {_duration(seconds_left)} left"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, description=figures)
        elif time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self.line(f"step {step}/{self._max_steps}  {figures}")

    def validated(self, validation: Validation, *, is_best: bool) -> None:
        """Tell the figures of a validation."""
        self.line(f"step {validation.step}  {figures(validation)}{'  best' if is_best else ''}")

    def line(self, text: str) -> None:
        """Print one line above the bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def stop(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def figures(validation: Validation) -> str:
    """One line for people."""
    return (
        f"valid loss {validation.loss:.4f}  perplexity {validation.perplexity:.2f}  BLEU {validation.bleu:.2f}  "
        f"exact {validation.exact_match:.1%}  {validation.minutes:.1f} min"
    )


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
