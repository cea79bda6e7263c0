"""A picture of a training: loss, BLEU and learning rate by step."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from edgeformer.run.folder import METRICS_FILE
from edgeformer.train.report.metrics import read_metrics
from edgeformer_runtime.files import write_atomically

PICTURE_FILE = "training.png"


def draw_training(run: Path) -> Path:
    """Draw ``metrics.csv`` of a run folder as ``training.png``, unless that is up to date; return its path."""
    metrics, picture = run / METRICS_FILE, run / PICTURE_FILE
    if not picture.is_file() or picture.stat().st_mtime_ns < metrics.stat().st_mtime_ns:
        buffer = BytesIO()
        training_figure(read_metrics(metrics)).savefig(buffer, format="png", dpi=150)
        write_atomically(picture, buffer.getvalue())
    return picture


def training_figure(rows: list[dict[str, str]]) -> Figure:
    """Return a figure of three panels that share the axis of steps, from rows of ``metrics.csv``."""
    figure = Figure(figsize=(8, 9), layout="constrained")
    loss, bleu, rate = figure.subplots(3, 1, sharex=True)
    _plot(loss, rows, "train_loss", label="training", color="tab:blue", linewidth=1)
    _plot(loss, rows, "valid_loss", label="validation", color="tab:orange", marker="o", markersize=4)
    loss.set_ylabel("loss per token (nats)")
    loss.legend()
    _plot(bleu, rows, "valid_bleu", color="tab:orange", marker="o", markersize=4)
    bleu.set_ylabel("validation BLEU (greedy)")
    bleu.set_ylim(bottom=0)
    _plot(rate, rows, "learning_rate", color="tab:green")
    rate.set_ylabel("learning rate")
    rate.set_ylim(bottom=0)
    rate.ticklabel_format(axis="y", style="sci", scilimits=(-2, 2))
    rate.set_xlabel("step (updates of the weights)")
    rate.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for axes in (loss, bleu, rate):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _plot(axes: Axes, rows: list[dict[str, str]], column: str, **style: Any) -> None:
    points = [(int(row["step"]), float(row[column])) for row in rows if row[column]]
    axes.plot([step for step, _ in points], [value for _, value in points], **style)
