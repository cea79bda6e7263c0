"""Tables of a grid, for the terminal and for a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeformer.markdown import markdown_table
from edgeformer_bench.grid.report import Cell, Model, Report
from edgeformer_bench.peers.systems import REFERENCE
from edgeformer_bench.rounds import speed_cells
from edgeformer_runtime.cli.output import plural
from edgeformer_runtime.files import write_atomically


@dataclass(frozen=True)
class Rows:
    """A table of text."""

    title: str
    """What the table shows."""
    columns: Sequence[str]
    """Headers; the first column holds names."""
    rows: Sequence[Sequence[str]]
    """Text of the cells, row by row."""


def tables(report: Report) -> Iterator[Rows]:
    """Yield all tables of a report."""
    for cell in report.cells:
        yield _cell_table(cell)
    for model in report.models:
        yield _model_table(model)
    engines = {facts.system: facts.version for model in report.models for facts in model.systems if facts.version}
    if engines:
        yield Rows("Engines", ("system", "engine"), list(engines.items()))


def problems(report: Report) -> list[str]:
    """List what could not be measured, and outputs that should be equal but differ; one line each."""
    lines = []
    for model in report.models:
        for facts in model.systems:
            if facts.error:
                lines.append(f"{model.name}: {facts.system} was not measured: {facts.error}")
            elif facts.weights == "float32":
                lines += [
                    f"{model.name}: {facts.system}, {search}, differs from {model.baseline} in "
                    f"{model.compared - same} of {plural(model.compared, 'sentence')}."
                    for search, same in facts.identical.items()
                    if same < model.compared
                ]
    reported = {(model.name, facts.system, facts.error) for model in report.models for facts in model.systems}
    lines += [
        f"{cell.setting.model}, {cell.setting.workload}: {result.system} failed: {result.error}"
        for cell in report.cells
        for result in cell.results
        if result.error and (cell.setting.model, result.system, result.error) not in reported
    ]
    return lines


def write_page(report: Report, path: Path) -> None:
    """Write a grid's report as a page in Markdown."""
    lines = _introduction(report)
    for table in tables(report):
        lines += [f"## {table.title}", "", *markdown_table(table.columns, table.rows), ""]
    write_atomically(path, "\n".join(lines).encode())


def _introduction(report: Report) -> list[str]:
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
        "```sh",
        *report.commands,
        "```",
        "",
    ]
    if notes := problems(report):
        lines += [*(f"- {note}" for note in notes), ""]
    return lines


def _cell_table(cell: Cell) -> Rows:
    setting = cell.setting
    times = ("median ms", "p25 ms", "p75 ms", "first token ms", "step ms")
    columns = ("system", *times, "tokens/s", "speed", "95 % interval")
    rows = []
    for result in cell.results:
        timing = result.timing
        if timing is None:
            rows.append((result.system, *"–" * (len(columns) - 1)))
            continue
        rows.append(
            (
                result.system,
                _ms(timing.median_ms),
                _ms(timing.p25_ms),
                _ms(timing.p75_ms),
                "–" if result.first_token_ms is None else _ms(result.first_token_ms),
                _number(result.step_ms(setting.target_length), 3),
                _number(cell.per_second(result), 0),
                *speed_cells(result.speed),
            )
        )
    return Rows(f"{setting.model}: {setting.workload}, {plural(setting.threads, 'thread')}", columns, rows)


def _model_table(model: Model) -> Rows:
    searches = list(dict.fromkeys(search for facts in model.systems for search in facts.identical))
    rows = []
    for facts in model.systems:
        start = facts.start
        rows.append(
            (
                facts.system,
                "–" if start is None else f"{start.bytes / 1e6:.1f}",
                "–" if start is None else f"{start.seconds:.2f}",
                "–" if start is None else _number(start.peak_mb, 0),
                *(f"{facts.identical[search]}" if facts.identical else "–" for search in searches),
            )
        )
    title = (
        f"{model.name}, {model.parameters / 1e6:.1f} M parameters: files; a fresh process up to its first translation; "
        f"outputs identical to {model.baseline}, of {model.compared}"
    )
    columns = ("system", "files MB", "start s", "peak MB", *(f"identical, {search}" for search in searches))
    return Rows(title, columns, rows)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ms(value: float) -> str:
    """Format milliseconds with at least three digits."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
