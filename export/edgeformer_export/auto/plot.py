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


def plot_candidates(choice: Choice, path: Path) -> None:
    """Write :func:`candidates_figure` as PNG."""
    stream = BytesIO()
    candidates_figure(choice).savefig(stream, format="png", dpi=120)
    write_atomically(path, stream.getvalue())


def candidates_figure(choice: Choice) -> Figure:
    """Draw two panels in which better candidates are closer to the upper left. Filled points are on the Pareto front,
    a ring marks the chosen candidate, and the dashed line is the budget."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    by_size, by_latency = figure.subplots(1, 2, sharey=True)
    _draw(by_size, choice, lambda candidate: candidate.bytes / 1e6)
    _draw(by_latency, choice, lambda candidate: candidate.latency.mean_ms)
    by_size.set(xlabel="MB of graphs, weights and tokenizers", ylabel="BLEU")
    by_latency.set(xlabel="ms per sentence")
    handles, names = by_size.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    return figure


def _draw(axes: Axes, choice: Choice, value: Callable[[Measured], float]) -> None:
    colors = mpl.colormaps["tab20"].resampled(len(choice.candidates))
    for number, candidate in enumerate(choice.candidates):
        x, y, color = value(candidate), candidate.quality.bleu, colors(number)
        face = color if candidate.on_front else "none"
        axes.scatter(x, y, s=40, facecolors=face, edgecolors=color, label=candidate.name, zorder=3)
        if candidate.chosen:
            axes.scatter(x, y, s=180, facecolors="none", edgecolors="black", zorder=2)
    axes.axhline(choice.candidates[0].quality.bleu - choice.max_bleu_drop, color="black", linestyle="--", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
