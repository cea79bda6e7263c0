"""Output of commands: tables, JSON, files and progress. Everything but results goes to standard error."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table

from edgeformer_runtime.cli.terminal import echo, visible
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.files import atomic_file

LINE_SECONDS = 15.0
"""Time between lines of progress if standard error is not a terminal."""


class _Console(Console):
    """Prints text that is :func:`visible`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See :meth:`Console.render`."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


@cache
def console(stderr: bool = False) -> Console:
    """The console for people: results on standard output, notes and progress on standard error.

    Text is printed verbatim: a file name or a translation may contain square brackets, which are markup to rich.
    """
    return _Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)


def table(title: str, *columns: str) -> Table:
    """An empty table; the first column is left-aligned, the others right-aligned."""
    rows = Table(title=title, title_justify="left", title_style="bold", show_header=any(columns))
    for index, column in enumerate(columns):
        rows.add_column(column, justify="right" if index else "left")
    return rows


def json_text(value: Any) -> str:
    """Anything made of dataclasses, structs, paths and plain values as one JSON document."""
    data = msgspec.json.encode(value, enc_hook=lambda item: str(item) if isinstance(item, Path) else _unknown(item))
    return msgspec.json.format(data, indent=2).decode()


def print_json(value: Any) -> None:
    """Print :func:`json_text` on standard output."""
    echo(json_text(value))


@contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """A UTF-8 file that gets its name only if the block succeeds. A device or a pipe is written directly.

    Raises:
        ConfigError: the folder does not exist, or the path is a folder.
    """
    refuse_folder(path)
    if path.exists() and not path.is_file():  # such as /dev/null
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    with atomic_file(path) as file:
        stream = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield stream
        finally:
            stream.detach()  # writes what is buffered


def refuse_folder(output: Path) -> None:
    """Check that a file could be written.

    Raises:
        ConfigError: its folder does not exist, or the path is a folder.
    """
    if not output.parent.is_dir():
        raise ConfigError(f"Folder `{output.parent}` does not exist; create it, or write `{output.name}` elsewhere.")
    if output.is_dir():
        raise ConfigError(f"`{output}` is a folder; give the name of a file to write.")


def refuse_input(output: Path, *inputs: Path | None) -> None:
    """Keep a command from overwriting its input.

    Raises:
        ConfigError: the output is one of the inputs.
    """
    if output.exists() and any(path is not None and path.exists() and output.samefile(path) for path in inputs):
        raise ConfigError(f"`{output}` is an input file; give another name with --output.")


def print_warnings(warnings: Iterable[str]) -> None:
    """Print sentences that a user should not miss, on standard error."""
    for warning in warnings:
        console(stderr=True).print(f"Warning: {warning}", style="yellow")


def one_line(text: str) -> str:
    """A model may produce a line feed; output keeps one line per input line."""
    return text.replace("\n", " ")


def human_bytes(count: float) -> str:
    """``1234567`` as ``1.23 MB``."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def plural(count: int, noun: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@contextmanager
def stages(names: Mapping[str, str] | None = None, *, quiet: bool = False) -> Iterator[Callable[[str, float], None]]:
    """Show the progress of work in stages; yields ``report(stage, fraction)``.

    A terminal gets progress bars; a file gets a line per stage, and one every :data:`LINE_SECONDS`. Both show the
    percentage and the remaining time of the stage.

    Args:
        names: description of each stage; ``None`` if a stage describes itself.
        quiet: show nothing.
    """
    begun: dict[str, float] = {}
    with _shown(
        quiet,
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    ) as show:

        def report(stage: str, fraction: float) -> None:
            text, now = stage if names is None else names[stage], time.monotonic()
            seconds, line = now - begun.setdefault(stage, now), text
            if seconds and fraction > 0:
                line = f"{text}: {fraction:.0%}, {timedelta(seconds=round(seconds * (1 / fraction - 1)))} left"
            show(stage, text, line, fraction)

        yield report


@contextmanager
def counting(what: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show how many items are done; yields ``report(done, total)``, which must be called once before the work.

    A terminal gets a progress bar, a file a line every :data:`LINE_SECONDS`, both with speed and remaining time.

    Args:
        what: name of the items, in the plural.
        quiet: show nothing.
    """
    first: tuple[float, int] | None = None
    with _shown(quiet, BarColumn(), TextColumn("{task.description}")) as show:

        def report(done: int, total: int) -> None:
            nonlocal first
            text, now = f"{done:,} of {total:,} {what}", time.monotonic()
            first = first or (now, done)
            if done != first[1]:
                seconds = (now - first[0]) / (done - first[1])  # each
                text += f"  {1 / seconds:,.1f}/s  {timedelta(seconds=round(seconds * (total - done)))} left"
            show(what, text, text, done / max(1, total))

        yield report


@contextmanager
def _shown(quiet: bool, *columns: ProgressColumn) -> Iterator[Callable[[str, str, str, float], None]]:
    """Show tasks one after the other; yields ``show(task, text, line, fraction)``, which has the text beside the bar of
    a terminal, and what is a line of a file."""
    tasks: dict[str, Any] = {}
    if quiet:
        yield lambda task, text, line, fraction: None
    elif not sys.stderr.isatty():

        def print_line(task: str, text: str, line: str, fraction: float) -> None:
            now = time.monotonic()
            if task not in tasks or (fraction > 0 and now - tasks[task] >= LINE_SECONDS):
                tasks[task] = now
                console(stderr=True).print(f"{line} …")

        yield print_line
    else:
        # A console of its own, so that progress stays visible while standard error is redirected.
        with Progress(*columns, console=_Console(file=sys.stderr), transient=True) as progress:

            def draw(task: str, text: str, line: str, fraction: float) -> None:
                if task not in tasks:
                    for other in tasks.values():
                        progress.update(other, total=1.0, completed=1.0)
                    tasks[task] = progress.add_task(text, total=None)
                total = 1.0 if fraction > 0 else None
                progress.update(tasks[task], description=text, total=total, completed=fraction)

            yield draw


def _unknown(item: object) -> Any:
    raise NotImplementedError(f"{type(item).__name__} has no JSON form")
