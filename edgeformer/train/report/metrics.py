"""The metrics of a run: ``metrics.csv``, and TensorBoard if it is installed."""

from __future__ import annotations

import csv
import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgeformer.run.folder import METRICS_FILE
from edgeformer_runtime.files import naming, write_atomically

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
    """Appends metrics to ``metrics.csv`` and, if it is installed, to TensorBoard's log in folder ``tensorboard``.

    As a context manager, it closes the TensorBoard log.

    Args:
        folder: the run folder.
        step: updates made before; metrics of later ones are dropped, since a resumed run makes those updates again.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self._path = folder / METRICS_FILE
        rows = [row for row in read_metrics(self._path) if int(row["step"]) <= step] if step else []
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
        """Append one row of metrics that have names of :data:`COLUMNS`, after an update."""
        with naming(self._path), self._path.open("a", encoding="utf-8", newline="") as file:
            row = {name: f"{value:.6g}" for name, value in values.items()}
            csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n").writerow({"step": step, **row})
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


def read_metrics(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a ``metrics.csv``, oldest first; values that a row does not have are empty.

    If there is no file, there are no rows.
    """
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if None not in row.values() and row["step"].isdigit()]
