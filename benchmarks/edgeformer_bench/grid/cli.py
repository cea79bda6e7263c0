"""The command behind ``make bench``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edgeformer.errors import ConfigError
from edgeformer.train.run import library_versions
from edgeformer_bench.commands import Command, command_line
from edgeformer_bench.grid.measure import Grid
from edgeformer_bench.grid.models import PRECISIONS
from edgeformer_bench.grid.options import LENGTHS, OURS, PRESETS, SLOW, THREADS, WORKLOADS, GridOptions
from edgeformer_bench.grid.report import Report, resumed
from edgeformer_bench.grid.tables import problems, tables, write_page
from edgeformer_bench.options import peer_pythons
from edgeformer_bench.peers.base import OF_IMPORTED_MODELS, PEERS
from edgeformer_runtime.cli.output import console, plural, table
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.selfcheck.machine import machine_summary

EXCEPT = ", ".join((SLOW, *OF_IMPORTED_MODELS))
"""Systems that are measured on request."""


def _several(name: str, field: str, kind: click.ParamType[Any], text: str) -> Callable[[Any], Any]:
    """Create an option that may be repeated."""
    return click.option(name, field, multiple=True, type=kind, help=f"{text}; may be repeated.")


@click.command(cls=Command)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/bench"),
    show_default=True,
    help="Folder for results and models.",
)
@_several("--preset", "presets", click.Choice(PRESETS), "Size of the model. Default: edge and base")
@_several("--workload", "workloads", click.Choice(list(WORKLOADS)), "Batch size x beam size. Default: all")
@_several("--length", "lengths", click.IntRange(2, 64), "Source tokens. Default: 20")
@_several("--threads", "threads", click.IntRange(1), "CPU threads per operator. Default: 1")
@_several("--system", "systems", click.Choice((OURS, *PEERS)), f"System to measure. Default: all except {EXCEPT}")
@_several("--precision", "precisions", click.Choice(PRECISIONS), "Precision of our bundles. Default: all")
@click.option(
    "--full", is_flag=True, help="All presets and systems, lengths 10, 20 and 60, 1 and 2 threads. Takes hours."
)
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Measured rounds per cell.")
@click.option(
    "--seconds", default=40.0, show_default=True, help="Time limit per cell; at least three rounds are measured."
)
@click.option(
    "--starts", default=3, show_default=True, type=click.IntRange(1), help="Fresh processes per system, for start time."
)
@click.option(
    "--vocab-size",
    default=32_000,
    show_default=True,
    type=click.IntRange(1000),
    help="Vocabulary size of the presets.",
)
@peer_pythons
@click.option("--resume", is_flag=True, help="Continue the measurements in OUT instead of starting over.")
def main(out: Path, full: bool, resume: bool, **choices: Any) -> None:
    """Compare edgeformer with its peers: the same weights, tokens and threads, in one run.

    Every system runs in a process of its own, and all do the same work in alternating rounds; times are medians.
    Presets have random weights, and every output has the given length; for a trained model, see `edgeformer bench`.

    Writes OUT/bench.json, saved after each cell, and OUT/bench.md.
    """
    options = _options(out, full, **choices)
    report = _report(options, resume=resume)
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=1) as progress:
        Grid(report, options, progress).measure()
    page = options.results.with_suffix(".md")
    write_page(report, page)
    _print(report)
    console().print(f"{report.machine}; {options.results}, {page}")


def _options(out: Path, full: bool, **choices: Any) -> GridOptions:
    """Fill in the defaults of options, which depend on ``--full``."""
    threads = choices["threads"] or (THREADS if full else THREADS[:1])
    usable = tuple(count for count in threads if count <= available_cpus())
    if not usable:
        raise click.UsageError(f"This process has {plural(available_cpus(), 'CPU')}; --threads must not exceed that.")
    defaults = {
        "presets": PRESETS if full else PRESETS[1:],
        "workloads": tuple(WORKLOADS),
        "lengths": LENGTHS if full else LENGTHS[1:2],
        "systems": tuple(name for name in (OURS, *PEERS) if name not in OF_IMPORTED_MODELS and (full or name != SLOW)),
        "precisions": PRECISIONS,
    }
    choices |= {name: choices[name] or default for name, default in defaults.items()}
    return GridOptions(work=out / "models", results=out / "bench.json", **{**choices, "threads": usable})


def _report(options: GridOptions, *, resume: bool) -> Report:
    """Create a report, or load the one to resume."""
    report = Report(
        machine=machine_summary(),
        versions=library_versions("onnxruntime", "ctranslate2"),
        systems=list(options.systems),
        vocab_size=options.vocab_size,
        commands=[command_line()],
    )
    if resume:
        return resumed(options.results, report)
    _clear(options.work)
    return report


def _clear(work: Path) -> None:
    """Remove the models of an earlier run, so that no model is older than the code."""
    marker = work / ".bench"
    if work.exists() and any(work.iterdir()) and not marker.exists():
        raise ConfigError(f"`{work}` was not made by this benchmark; choose another --out.")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    marker.touch()


def _print(report: Report) -> None:
    for rows in tables(report):
        shown = table(rows.title, *rows.columns)
        shown.columns[0].min_width = max((len(row[0]) for row in rows.rows), default=0)
        for row in rows.rows:
            shown.add_row(*row)
        console().print(shown)
    for line in problems(report):
        console().print(line)
