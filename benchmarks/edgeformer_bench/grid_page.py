"""A report as one HTML page without scripts: figures as inline SVG, and the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from edgeformer.page import document, html_table
from edgeformer_bench.grid_report import Cell, Report, Result, problems, tables
from edgeformer_bench.systems import REFERENCE

COLOURS = {"edgeformer": "Blues", "CTranslate2": "Oranges", "torch": "Greys", "Optimum": "Greens"}
"""A colour map for each group of systems; its members are shades."""
Lines = dict[str, list[tuple[float, float]]]
"""Points by system."""


def page(report: Report) -> str:
    """The page."""
    parts = [
        f"<h1>edgeformer against its peers</h1><p>{escape(report.machine)}</p>",
        f"<p>{escape(', '.join(f'{name} {version}' for name, version in report.versions.items()))}</p>",
        "<p>All systems have the same weights and decode the same sources with the same number of threads. They take "
        "turns in one run, each in a process of its own; times are medians. Presets have random weights and "
        f"{report.vocab_size:,} tokens; every output has the length given. <em>Speed</em> is how many times as fast "
        f"as {REFERENCE} a system is.</p>",
        *(f"<p><code>{escape(command)}</code></p>" for command in report.commands),
    ]
    if lines := problems(report):
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>")
    for title, figure in figures(report):
        parts.append(f"<h2>{escape(title)}</h2><figure>{svg(figure)}</figure>")
    parts.append("<h2>Tables</h2>")
    parts += [html_table(rows.title, rows.columns, rows.rows) for rows in tables(report)]
    return document("edgeformer against its peers", parts)


def svg(figure: Figure) -> str:
    """A figure as an element of a page."""
    stream = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "edgeformer"}):
        figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def figures(report: Report) -> Iterator[tuple[str, Figure]]:
    """Titles and figures that the report has data for."""
    grid = [cell for cell in report.cells if not cell.setting.order]
    if not grid:
        return
    lengths = sorted({cell.setting.source_length for cell in grid})
    middle = lengths[len(lengths) // 2]
    for model in dict.fromkeys(cell.setting.model for cell in grid):
        cells = [cell for cell in grid if (cell.setting.model, cell.setting.source_length) == (model, middle)]
        yield f"Speed of {model}: times as fast as {REFERENCE}", _bars(report, cells)
    for beam_size in sorted({cell.setting.beam_size for cell in grid}):
        search = "greedy" if beam_size == 1 else f"beam {beam_size}"
        cells = [cell for cell in grid if cell.setting.beam_size == beam_size]
        panels = _panels(
            (cell, result.system, cell.setting.source_length, result.timing.median_ms)
            for cell, result in _measured(cells)
            if cell.setting.batch == 1 and result.timing is not None
        )
        if _has_lines(panels):
            title = f"Latency of one sentence against its length, {search}"
            yield title, _lines(report, panels, "source tokens", "milliseconds")
        panels = _panels(
            (cell, result.system, cell.setting.batch, cell.per_second(result) or 0.0)
            for cell, result in _measured(cells)
            if cell.setting.source_length == middle
        )
        if _has_lines(panels):
            title = f"Throughput against batch, {search}, {middle} source tokens"
            yield title, _lines(report, panels, "sentences in a batch", "target tokens per second")
    sizes = {
        (model.name, facts.system): facts.start.bytes / 1e6
        for model in report.models
        for facts in model.systems
        if facts.start is not None
    }
    panels = _panels(
        (cell, result.system, sizes[cell.setting.model, result.system], cell.per_second(result) or 0.0)
        for cell, result in _measured(grid)
        if cell.setting.batch == cell.setting.beam_size == 1
        and cell.setting.source_length == middle
        and (cell.setting.model, result.system) in sizes
    )
    if panels:
        title = f"Size against speed, one sentence, greedy, {middle} source tokens"
        yield title, _lines(report, panels, "MB on disk", "target tokens per second")


def _measured(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
    return ((cell, result) for cell in cells for result in cell.results if result.timing is not None)


def _panels(points: Iterable[tuple[Cell, str, float, float]]) -> dict[str, Lines]:
    """Points of all systems by model and number of threads."""
    panels: dict[str, Lines] = {}
    for cell, system, x, y in points:
        lines = panels.setdefault(f"{cell.setting.model}, {cell.setting.threads} thread(s)", {})
        lines.setdefault(system, []).append((x, y))
    return {title: {name: sorted(points) for name, points in lines.items()} for title, lines in panels.items()}


def _has_lines(panels: dict[str, Lines]) -> bool:
    return any(len(points) > 1 for lines in panels.values() for points in lines.values())


def _lines(report: Report, panels: dict[str, Lines], across: str, up: str) -> Figure:
    """Two panels in a row, with one legend."""
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(5 * columns, 4 * rows), layout="constrained")
    colours = _colours(report)
    shown = {}
    for number, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        for name, points in lines.items():
            (shown[name],) = axes.plot(*zip(*points, strict=True), marker="o", color=colours[name])
        axes.set(title=title, xlabel=across, ylabel=up, yscale="log")
        axes.grid(alpha=0.3, which="both")
    figure.legend(shown.values(), shown.keys(), loc="outside right center", frameon=False)
    return figure


def _bars(report: Report, cells: Sequence[Cell]) -> Figure:
    """A group of bars for each cell."""
    names, colours = list(_colours(report)), _colours(report)
    height = 0.18 * sum(len(cell.results) + 2 for cell in cells)
    figure = Figure(figsize=(8, max(2.0, height)))
    axes = figure.subplots()
    position, ticks = 0.0, {}
    for cell in cells:
        ticks[position + len(cell.results) / 2] = f"{cell.setting.threads} thread(s)\n{cell.setting.workload}"
        for result in cell.results:
            speed = cell.speed(result)
            if speed is not None:
                axes.barh(position, speed, color=colours[result.system])
                axes.text(speed, position, f" {speed:.2f}", va="center", fontsize=6)
            position += 1
        position += 2
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=7)
    axes.set_ylim(position - 1, -1)
    axes.set_xlabel(f"times as fast as {REFERENCE}")
    for name in names:
        axes.barh(0, 0, color=colours[name], label=name)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False, fontsize=8)
    return figure


def _colours(report: Report) -> dict[str, Any]:
    """A colour for each system, shades of one for those of a group."""
    names = list(dict.fromkeys(result.system for cell in report.cells for result in cell.results))
    colours = {}
    for group, palette in COLOURS.items():
        members = [name for name in names if re.split(r"[ .]", name)[0] == group]
        shades = mpl.colormaps[palette]
        for index, name in enumerate(members):
            colours[name] = shades(0.85 - 0.5 * index / max(1, len(members)))
    return colours
