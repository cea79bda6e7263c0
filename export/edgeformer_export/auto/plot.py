"""A plot of measured candidates: quality against size and against latency."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from edgeformer_runtime.bundle.choice import Choice, Measured
from edgeformer_runtime.files import write_atomically
from edgeformer_runtime.interval import Interval


def plot_candidates(choice: Choice, path: Path) -> None:
    """Write :func:`candidates_figure` as PNG."""
    stream = BytesIO()
    candidates_figure(choice).savefig(stream, format="png", dpi=120)
    write_atomically(path, stream.getvalue())


def candidates_figure(choice: Choice) -> Figure:
    """Draw two panels in which better candidates are closer to the upper left. Bars are confidence intervals; those of
    BLEU are of the difference from fp32. Filled points are on the Pareto front, crosses are inadmissible, a ring marks
    the chosen candidate, and the dashed line is the budget."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    by_size, by_latency = figure.subplots(1, 2, sharey=True)
    _draw(by_size, choice, lambda candidate: candidate.bytes / 1e6, lambda candidate: None)
    _draw(
        by_latency,
        choice,
        lambda candidate: candidate.latency.median_ms,
        lambda candidate: candidate.latency.median_interval,
    )
    by_size.set(xlabel="MB of graphs, weights and tokenizers", ylabel="BLEU")
    by_latency.set(xlabel="median ms per sentence")
    handles, names = by_size.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    return figure


def _draw(
    axes: Axes,
    choice: Choice,
    value: Callable[[Measured], float],
    interval: Callable[[Measured], Interval | None],
) -> None:
    colors = mpl.colormaps["tab20"].resampled(len(choice.candidates))
    reference = choice.candidates[0].quality.bleu
    for number, candidate in enumerate(choice.candidates):
        x, y, color = value(candidate), candidate.quality.bleu, colors(number)
        if candidate.admissible:
            face = color if candidate.on_front else "none"
            axes.scatter(x, y, s=40, facecolors=face, edgecolors=color, label=candidate.name, zorder=3)
        else:
            axes.scatter(x, y, s=40, marker="x", color=color, label=candidate.name, zorder=3)
        if candidate.chosen:
            axes.scatter(x, y, s=180, facecolors="none", edgecolors="black", zorder=2)
        if (across := interval(candidate)) is not None:
            axes.plot((across.low, across.high), (y, y), color=color, linewidth=0.8)
        if (drop := candidate.quality.drop_interval) is not None:
            axes.plot((x, x), (reference - drop.high, reference - drop.low), color=color, linewidth=0.8)
    axes.axhline(reference - choice.max_bleu_drop, color="black", linestyle="--", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
