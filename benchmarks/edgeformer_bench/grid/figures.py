"""Figures of a grid, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from edgeformer_bench.grid.report import Cell, Report, Result
from edgeformer_bench.peers.base import Kind
from edgeformer_bench.peers.systems import REFERENCE
from edgeformer_runtime.cli.output import plural

PALETTES: dict[Kind, str] = {"bundle": "Blues", "ctranslate2": "Oranges", "torch": "Greys", "optimum": "Greens"}
"""Colormap for each kind of system; systems of the same kind use its shades."""
PANEL_COLUMNS = 3

Lines = dict[str, list[tuple[float, float]]]
"""Points by system."""


@dataclass(frozen=True)
class Picture:
    """A figure with its name and title."""

    name: str
    """Name used in file names."""
    title: str
    """What the figure shows."""
    figure: Figure
    """The figure."""


def pictures(report: Report) -> Iterator[Picture]:
    """Yield every figure that the report has data for."""
    grid = [cell for cell in report.cells if not cell.setting.order]
    if not grid:
        return
    lengths = sorted({cell.setting.source_length for cell in grid})
    middle = lengths[len(lengths) // 2]
    at_middle = [cell for cell in grid if cell.setting.source_length == middle]
    colors = _colors(report)
    yield Picture("speed", f"Speed relative to {REFERENCE}, {middle} source tokens", _speeds(at_middle, colors))
    for beam_size in sorted({cell.setting.beam_size for cell in grid}):
        cells = [cell for cell in grid if cell.setting.beam_size == beam_size]
        search = cells[0].setting.search
        panels = _panels(
            (cell, result.system, cell.setting.source_length, result.timing.median_ms)
            for cell, result in _measured(cells)
            if cell.setting.batch == 1 and result.timing is not None
        )
        if _has_lines(panels):
            figure = _lines(panels, colors, "source tokens", "ms")
            yield Picture(f"latency-beam-{beam_size}", f"Latency of one sentence by its length, {search}", figure)
        panels = _panels(
            (cell, result.system, cell.setting.batch, cell.per_second(result) or 0.0)
            for cell, result in _measured(cells)
            if cell.setting.source_length == middle
        )
        if _has_lines(panels):
            figure = _lines(panels, colors, "sentences per batch", "target tokens/s")
            title = f"Throughput by batch size, {search}, {middle} source tokens"
            yield Picture(f"throughput-beam-{beam_size}", title, figure)
    panels = _sizes(report, at_middle)
    if panels:
        figure = _lines(panels, colors, "MB on disk", "target tokens/s")
        yield Picture("size", f"Throughput by size, one sentence, greedy, {middle} source tokens", figure)


def _measured(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
    return ((cell, result) for cell in cells for result in cell.results if result.timing is not None)


def _sizes(report: Report, cells: Sequence[Cell]) -> dict[str, Lines]:
    """Plot throughput of greedy search for one sentence against size on disk."""
    megabytes = {
        (model.name, facts.system): facts.start.bytes / 1e6
        for model in report.models
        for facts in model.systems
        if facts.start is not None
    }
    return _panels(
        (cell, result.system, megabytes[cell.setting.model, result.system], cell.per_second(result) or 0.0)
        for cell, result in _measured(cells)
        if cell.setting.batch == cell.setting.beam_size == 1 and (cell.setting.model, result.system) in megabytes
    )


def _panels(points: Iterable[tuple[Cell, str, float, float]]) -> dict[str, Lines]:
    """Group points of all systems by model and number of threads."""
    panels: dict[str, Lines] = {}
    for cell, system, x, y in points:
        lines = panels.setdefault(f"{cell.setting.model}, {plural(cell.setting.threads, 'thread')}", {})
        lines.setdefault(system, []).append((x, y))
    return {title: {name: sorted(points) for name, points in lines.items()} for title, lines in panels.items()}


def _has_lines(panels: dict[str, Lines]) -> bool:
    return any(len(points) > 1 for lines in panels.values() for points in lines.values())


def _lines(panels: dict[str, Lines], colors: dict[str, Any], across: str, up: str) -> Figure:
    """Draw panels with a common legend."""
    columns = min(PANEL_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4 * columns + 2, 3.5 * rows), layout="constrained")
    shown = {}
    for number, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, number)
        for name, points in lines.items():
            (shown[name],) = axes.plot(*zip(*points, strict=True), marker="o", color=colors[name])
        axes.set(title=title, xlabel=across, ylabel=up, yscale="log")
        axes.grid(alpha=0.3, which="both")
    figure.legend(shown.values(), shown.keys(), loc="outside right center", frameon=False)
    return figure


def _speeds(cells: Sequence[Cell], colors: dict[str, Any]) -> Figure:
    """Draw a panel per model, in which each cell is a row of points with confidence intervals."""
    models: dict[str, list[Cell]] = {}
    for cell in cells:
        models.setdefault(cell.setting.model, []).append(cell)
    heights = [0.3 * len(rows) + 0.8 for rows in models.values()]
    figure = Figure(figsize=(9, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(models), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    shown = {}
    for axes, (model, rows) in zip(panels, models.items(), strict=True):
        settings = [row.setting for row in rows]
        labels = [f"batch {at.batch}, {at.search}, {plural(at.threads, 'thread')}" for at in settings]
        for height, row in enumerate(rows):
            for result in row.results:
                if (speed := result.speed) is not None:
                    shown[result.system] = axes.scatter(speed.median, height, color=colors[result.system])
                    if speed.interval is not None:
                        ends = speed.interval.low, speed.interval.high
                        axes.plot(ends, (height, height), color=colors[result.system], linewidth=0.8)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_yticks(range(len(rows)), labels)
        axes.invert_yaxis()
        axes.set_title(model)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel(f"speed relative to {REFERENCE}")
    figure.legend(shown.values(), shown.keys(), loc="outside right center", frameon=False)
    return figure


def _colors(report: Report) -> dict[str, Any]:
    """Assign a color to each measured system."""
    kinds = {facts.system: facts.kind for model in report.models for facts in model.systems if facts.kind is not None}
    systems = dict.fromkeys(result.system for cell in report.cells for result in cell.results)
    colors = {}
    for kind, palette in PALETTES.items():
        members = [name for name in systems if kinds.get(name) == kind]
        for index, name in enumerate(members):
            colors[name] = mpl.colormaps[palette](0.85 - 0.5 * index / max(1, len(members)))
    return colors
