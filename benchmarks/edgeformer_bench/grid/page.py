"""A grid's report as a page in Markdown."""

from __future__ import annotations

from pathlib import Path

from edgeformer.markdown import markdown_table
from edgeformer_bench.grid.report import Report
from edgeformer_bench.grid.tables import problems, tables
from edgeformer_bench.peers.systems import REFERENCE
from edgeformer_runtime.files import write_atomically


def write_page(report: Report, path: Path) -> None:
    """Write a grid's report as a page in Markdown."""
    write_atomically(path, "\n".join([*_introduction(report), *_tables(report)]).encode())


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


def _tables(report: Report) -> list[str]:
    lines = []
    for table in tables(report):
        lines += [f"## {table.title}", "", *markdown_table(table.columns, table.rows), ""]
    return lines
