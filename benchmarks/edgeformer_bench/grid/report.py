"""The results of a grid, and a page of them."""

from __future__ import annotations

import msgspec

from edgeformer.markdown import markdown_table
from edgeformer_bench.peers.systems import REFERENCE
from edgeformer_bench.rounds import Result, speed_cells
from edgeformer_runtime.cli.output import plural


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """One cell of the grid, independent of the system."""

    model: str
    """A preset with random weights."""
    threads: int
    beam_size: int
    """Hypotheses kept; 1 is greedy."""
    batch: int
    source_length: int
    """Tokens of each source, end token included."""
    target_length: int
    """Tokens decoded for each sentence."""

    def __str__(self) -> str:
        search = "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"
        lengths = f"{self.source_length} → {self.target_length} tokens"
        return f"{self.model}: batch {self.batch}, {search}, {lengths}, {plural(self.threads, 'thread')}"


class Cell(msgspec.Struct, kw_only=True):
    """All systems under one setting."""

    setting: Setting
    """What was measured."""
    results: list[Result]
    """One per system, with speeds relative to :data:`~edgeformer_bench.peers.systems.REFERENCE`."""


class System(msgspec.Struct, kw_only=True):
    """A system with one model, apart from its times."""

    model: str
    system: str
    version: str = ""
    bytes: int = 0
    """Total size of the model's files, in bytes."""
    seconds: float | None = None
    """Time from the start of a fresh process to the end of its first translation."""
    peak_mb: float | None = None
    """Peak resident memory of that process, in 10^6 bytes."""
    identical: dict[str, int] = {}
    """Number of sentences with the same output as our fp32 bundle's, by search."""
    error: str = ""
    """Why the system does not take part."""


class Report(msgspec.Struct, kw_only=True):
    """A whole run of the benchmark."""

    machine: str
    versions: dict[str, str]
    """Versions of Python and the libraries of this process."""
    vocab_size: int
    command: str
    systems: list[System] = []
    """Systems by model."""
    cells: list[Cell] = []
    """Cells measured so far."""


def page(report: Report) -> list[str]:
    """The report in Markdown."""
    lines = [
        "# edgeformer and its peers",
        "",
        f"{report.machine}. {', '.join(f'{name} {version}' for name, version in report.versions.items())}.",
        "",
        "All systems have the same weights and decode the same sources with the same number of threads. They take "
        "turns in one run, each in a process of its own; times are medians. Presets have random weights and "
        f"{report.vocab_size:,} tokens; every output has the given length. Speeds are relative to {REFERENCE}: medians "
        "of the ratios of times in the same round, with 95 % confidence intervals by bootstrap.",
        "",
        f"`{report.command}`",
        "",
    ]
    columns = ["system", "median ms", "p25 ms", "p75 ms", "tokens/s", "speed", "95 % interval"]
    for cell in report.cells:
        rows = [_row(cell.setting, result) for result in cell.results]
        lines += [f"## {cell.setting}", "", *markdown_table(columns, rows), ""]
    searches = list(dict.fromkeys(search for system in report.systems for search in system.identical))
    columns = ["model", "system", "engine", "files MB", "start s", "peak MB", *(f"same, {name}" for name in searches)]
    rows = [
        (
            system.model,
            system.system,
            system.version or "–",
            f"{system.bytes / 1e6:.1f}",
            *(_number(value, digits) for value, digits in ((system.seconds, 2), (system.peak_mb, 0))),
            *(_number(system.identical.get(search), 0) for search in searches),
        )
        for system in report.systems
    ]
    lines += ["## Start of a fresh process, and outputs that are the same as our fp32 bundle's", ""]
    return [*lines, *markdown_table(columns, rows), "", *(f"- {problem}" for problem in problems(report))]


def problems(report: Report) -> list[str]:
    """List what could not be measured, one line each."""
    failed = [(system.model, system.system, system.error) for system in report.systems]
    failed += [(str(cell.setting), result.system, result.error) for cell in report.cells for result in cell.results]
    return [f"{where}: {system} was not measured: {error}" for where, system, error in failed if error]


def _row(setting: Setting, result: Result) -> tuple[str, ...]:
    timing = result.timing
    if timing is None:
        return result.system, *"–" * 6
    times = (_ms(value) for value in (timing.median_ms, timing.p25_ms, timing.p75_ms))
    per_second = setting.batch * setting.target_length / timing.median_ms * 1000
    return result.system, *times, f"{per_second:,.0f}", *speed_cells(result.speed)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ms(value: float) -> str:
    """Format milliseconds with at least three digits."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
