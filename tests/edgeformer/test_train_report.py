"""What a training shows of itself: metrics files and a picture."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeformer.train.report.metrics import COLUMNS, MetricsLog, read_metrics
from edgeformer.train.report.picture import draw_training, training_figure


def write_metrics(folder: Path, steps: int) -> None:
    """A training of the given length, validated every 10 updates."""
    with MetricsLog(folder) as log:
        for step in range(5, steps + 1, 5):
            log.write(step, learning_rate=1e-3 * step / steps, train_loss=5 - 4 * step / steps, tokens_per_second=100)
            if step % 10 == 0:
                log.write(step, valid_loss=5 - 3 * step / steps, valid_bleu=40 * step / steps)


def test_rows_are_read_back(tmp_path: Path) -> None:
    write_metrics(tmp_path, 20)
    with (tmp_path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    rows = read_metrics(tmp_path / "metrics.csv")
    assert [(row["step"], row["train_loss"], row["valid_bleu"]) for row in rows] == [
        ("5", "4", ""),
        ("10", "3", ""),
        ("10", "", "20"),
        ("15", "2", ""),
        ("20", "1", ""),
        ("20", "", "40"),
    ]


def test_a_resumed_log_drops_later_and_incomplete_rows(tmp_path: Path) -> None:
    write_metrics(tmp_path, 20)
    with (tmp_path / "metrics.csv").open("a", encoding="utf-8") as file:
        file.write("9,1.5")
    with MetricsLog(tmp_path, step=10):
        pass
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.csv")] == ["5", "10", "10"]
    assert read_metrics(tmp_path / "missing.csv") == []


READ_EVENTS = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print(*sorted(events.Tags()["scalars"]))
print(*((event.step, round(event.value, 3)) for event in events.Scalars("valid_bleu")))
"""


def test_tensorboard_gets_the_same_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is optional and not installed")
    # In processes of their own, since TensorBoard's imports may warn.
    write = "import sys; from pathlib import Path; from tests.edgeformer.test_train_report import write_metrics; "
    subprocess.run([sys.executable, "-c", write + "write_metrics(Path(sys.argv[1]), 20)", tmp_path], check=True)
    read = [sys.executable, "-c", READ_EVENTS, str(tmp_path / "tensorboard")]
    done = subprocess.run(read, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == [
        "learning_rate tokens_per_second train_loss valid_bleu valid_loss",
        "(10, 20.0) (20, 40.0)",
    ]


def test_the_picture_shows_loss_bleu_and_learning_rate(tmp_path: Path) -> None:
    write_metrics(tmp_path, 100)
    loss, bleu, rate = training_figure(read_metrics(tmp_path / "metrics.csv")).axes
    assert [axes.get_ylabel() for axes in (loss, bleu, rate)] == [
        "loss per token (nats)",
        "validation BLEU (greedy)",
        "learning rate",
    ]
    assert rate.get_xlabel() == "step (updates of the weights)"
    assert [line.get_label() for line in loss.lines] == ["training", "validation"]
    assert [np.size(line.get_xdata()) for axes in (loss, bleu, rate) for line in axes.lines] == [20, 10, 10, 20]
    assert np.max(rate.lines[0].get_ydata()) == 1e-3


@pytest.mark.slow
def test_the_picture_follows_the_metrics(tmp_path: Path) -> None:
    write_metrics(tmp_path, 20)
    picture = draw_training(tmp_path)
    first = picture.stat().st_mtime_ns
    assert draw_training(tmp_path).stat().st_mtime_ns == first
    write_metrics(tmp_path, 40)
    os.utime(tmp_path / "metrics.csv", ns=(first + 1, first + 1))
    assert draw_training(tmp_path).stat().st_mtime_ns > first
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
