"""The log of a run: ``metrics.csv``, and TensorBoard where it is installed."""

from __future__ import annotations

import csv
import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgeformer.train.run import METRICS_FILE
from edgeformer_runtime.files import write_atomically

COLUMNS = (
    "step",
    "minutes",
    "learning_rate",
    "gradient_norm",
    "train_loss",
    "tokens_per_second",
    "valid_loss",
    "valid_perplexity",
    "valid_bleu",
    "valid_exact_match",
)


class MetricsLog:
    """Appends rows; rows of updates after ``step`` are dropped first, since a resumed run makes them again."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self._path = folder / METRICS_FILE
        rows: list[dict[str, str]] = []
        if step and self._path.is_file():
            with self._path.open(encoding="utf-8", newline="") as file:
                rows = [
                    row
                    for row in csv.DictReader(file)
                    if (row.get("step") or "").isdigit() and int(row["step"]) <= step
                ]
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self._path, buffer.getvalue().encode("utf-8"))
        self._writer: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, **values: float) -> None:
        """Append one row; names are those of :data:`COLUMNS`."""
        with self._path.open("a", encoding="utf-8", newline="") as file:
            row = {name: f"{value:.6g}" for name, value in values.items()}
            csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n").writerow({"step": step, **row})
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish the TensorBoard log."""
        if self._writer is not None:
            self._writer.close()
