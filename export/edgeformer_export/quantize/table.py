"""The table of weights, each rounded once: graphs, report and plan of a bundle are written from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeformer_export.quantize.layers import Layer, WeightReader
from edgeformer_export.weights import row_slices
from edgeformer_runtime.bundle.report import TensorReport
from edgeformer_runtime.precision import Precision


class Integers(Protocol):
    """A matrix of integers, with their scales."""

    @property
    def nbytes(self) -> int:
        """Size of integers and scales, in bytes."""

    def restored(self, part: slice) -> NDArray[np.float32]:
        """Return what some of the rows are read as, ``(rows, width)``."""


IntegersT_co = TypeVar("IntegersT_co", bound=Integers, covariant=True)


@dataclass(frozen=True)
class QuantizedWeight(Generic[IntegersT_co]):
    """A row of the table: a weight in one precision. A weight that is read in two precisions has two rows."""

    layer: Layer
    """The weight."""
    readers: tuple[WeightReader, ...]
    """The operators that read it in this precision."""
    precision: Precision
    """The precision."""
    integers: IntegersT_co
    """What the weight is rounded to."""
    snr_db: float | None
    """See :attr:`~edgeformer_runtime.bundle.report.TensorReport.snr_db`."""

    @property
    def report(self) -> TensorReport:
        """How the weight is stored."""
        rows = self.layer.rows
        return TensorReport(
            name=self.layer.name,
            read_by=tuple(f"{reader.file} {reader.kind} {reader.name}" for reader in self.readers),
            shape=(rows.shape[0], rows.shape[1]),
            precision=self.precision,
            snr_db=self.snr_db,
            bytes=self.integers.nbytes,
            fp32_bytes=rows.nbytes,
        )


def signal_to_noise(rows: NDArray[np.float32], integers: Integers) -> float | None:
    """Compute the signal-to-noise ratio of a weight ``(rows, width)``, in dB; ``None`` if there is no error."""
    noise = _squares(rows, lambda part: rows[part] - integers.restored(part))
    signal = _squares(rows, lambda part: rows[part])
    return None if noise == 0 or signal == 0 else round(10 * math.log10(signal / noise), 2)


def _squares(rows: NDArray[np.float32], values: Callable[[slice], NDArray[np.float32]]) -> float:
    """Sum squares, a part of the rows at a time."""
    return sum(float(np.square(values(part), dtype=np.float64).sum()) for part in row_slices(rows))
