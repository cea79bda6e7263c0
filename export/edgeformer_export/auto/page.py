"""A choice of precision as a page with plots."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

from edgeformer.page import document, html_table
from edgeformer_export.choice_table import COLUMNS, SENSITIVITY_COLUMNS, explanation, rows, sensitivity_rows
from edgeformer_runtime.bundle.choice import Choice, Measured

WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 60, 110, 20, 45
LINE = 14
"""Height of a label."""
TICKS = 5


def page(name: str, choice: Choice) -> str:
    """Render the page as HTML.

    Args:
        name: of the bundle.
        choice: what was measured.
    """
    title = f"Precision of {name}: {choice.chosen}"
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<p>{_marked(line)}</p>" for line in explanation(choice)]
    parts.append("<ul>" + "".join(f"<li>{_marked(line)}</li>" for line in choice.remarks) + "</ul>")
    parts.append("<h2>Quality against size and latency</h2><figure>")
    parts.append(_plot(choice, "MB of graphs, weights and tokenizers", lambda candidate: candidate.bytes / 1e6))
    parts.append(_plot(choice, "milliseconds per sentence", lambda candidate: candidate.latency.mean_ms))
    parts.append(
        "</figure><p>Filled: on the Pareto front. Ringed: chosen. The dashed line is the budget; up and left is "
        "better.</p>"
    )
    parts.append(html_table("Candidates", COLUMNS, rows(choice)))
    for precision, order in choice.sensitivity.items():
        caption = f"Layers quantized to {precision} one at a time, all others in fp32; the most sensitive first"
        parts.append(html_table(caption, SENSITIVITY_COLUMNS, sensitivity_rows(order)))
    return document(title, parts)


def _marked(text: str) -> str:
    """Text as HTML, with code between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _plot(choice: Choice, across: str, value: Callable[[Measured], float]) -> str:
    """BLEU against a value; names are at the right, in the order of their points, so that they do not overlap."""
    points = [(value(candidate), candidate.quality.bleu, candidate) for candidate in choice.candidates]
    budget = choice.candidates[0].quality.bleu - choice.max_bleu_drop
    x, x_ticks = _axis([0.0, *(point[0] for point in points)], LEFT, WIDTH - RIGHT)
    y, y_ticks = _axis([budget, *(point[1] for point in points)], HEIGHT - BOTTOM, TOP)
    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' font-size='11' font-family='sans-serif'>"]
    for tick in x_ticks:
        parts.append(_line(x(tick), TOP, x(tick), HEIGHT - BOTTOM, "#eee"))
        parts.append(_text(x(tick), HEIGHT - BOTTOM + LINE, f"{tick:g}", "middle"))
    for tick in y_ticks:
        parts.append(_line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "#eee"))
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", "end"))
    parts.append(_line(LEFT, y(budget), WIDTH - RIGHT, y(budget), "#c33", "stroke-dasharray='4 3'"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across, "middle"))
    parts.append(_text(LEFT - 6, TOP - 8, "BLEU", "end"))
    names = _apart([y(bleu) for _, bleu, _ in points])
    for (at, bleu, candidate), height in zip(points, names, strict=True):
        fill = "#2166ac" if candidate.on_front else "white"
        parts.append(_line(x(at), y(bleu), WIDTH - RIGHT + 6, height, "#ccc"))
        if candidate.chosen:
            parts.append(f"<circle cx='{x(at):.1f}' cy='{y(bleu):.1f}' r='8' fill='none' stroke='#c33'/>")
        parts.append(f"<circle cx='{x(at):.1f}' cy='{y(bleu):.1f}' r='4' fill='{fill}' stroke='#2166ac'/>")
        parts.append(_text(WIDTH - RIGHT + 9, height + 4, candidate.name, "start"))
    return "".join(parts) + "</svg>"


def _axis(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[float]]:
    """A function from values to positions, and round values for ticks: steps of 1, 2 or 5 times a power of ten."""
    low, high = min(values), max(values)
    high = high if high > low else low + 1
    low, high = low - 0.05 * (high - low) * (low != 0), high + 0.05 * (high - low)
    power = 10 ** floor(log10((high - low) / TICKS))
    step = next(times * power for times in (1, 2, 5, 10) if times * power * TICKS >= high - low)
    ticks = [step * number for number in range(ceil(low / step), floor(high / step) + 1)]
    return lambda value: start + (value - low) / (high - low) * (end - start), ticks


def _apart(places: Sequence[float]) -> list[float]:
    """Positions in the same order, at least a label's height apart and inside the plot."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved, lowest = list(places), float(TOP)
    for number, index in enumerate(order):
        latest = HEIGHT - BOTTOM - LINE * (len(order) - 1 - number)
        moved[index] = max(lowest, min(places[index], latest))
        lowest = moved[index] + LINE
    return moved


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{colour}' {more}/>"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'>{escape(text)}</text>"
