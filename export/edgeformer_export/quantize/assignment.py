"""Assigns a precision to each operator, and computes the resulting error and size of its weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer_export.quantize.blocks import RoundBlocks
from edgeformer_export.quantize.layers import Layer
from edgeformer_export.quantize.strategies import STRATEGIES
from edgeformer_export.weights import row_slices
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.report import TensorReport
from edgeformer_runtime.precision import PRECISIONS, Precision

Assigned = Mapping[str, Mapping[str, Precision]]
"""For each graph, the precision of each of its operators with weights, by :attr:`Use.name`."""


def assign(layers: Sequence[Layer], precision: Precision) -> Assigned:
    """Assign a precision to every operator of a bundle of the given precision: that, or the encoder's."""
    strategy, other = STRATEGIES.get(precision), PRECISIONS[precision].encoder
    assigned: dict[str, dict[str, Precision]] = {contract.ENCODER_FILE: {}, contract.DECODER_FILE: {}}
    for layer in layers:
        for use in layer.uses:
            assigned.setdefault(use.file, {})[use.name] = (
                precision if strategy is None or strategy.quantizes(use) else other
            )
    return assigned


def tensor_reports(
    layers: Sequence[Layer],
    assigned: Assigned,
    round_blocks: RoundBlocks,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[TensorReport]:
    """Report how every weight is stored; a weight that is read in two precisions is stored, and listed, twice.

    Args:
        layers: all layers of a model.
        assigned: the precision of each operator.
        round_blocks: rounds weights in blocks.
        progress: called with the fraction done, 0 … 1.
    """
    reports = []
    size, done = sum(layer.rows.size for layer in layers), 0
    for layer in layers:
        for precision in dict.fromkeys(assigned[use.file][use.name] for use in layer.uses):
            error, nbytes = stored(layer, precision, round_blocks)
            readers = [use for use in layer.uses if assigned[use.file][use.name] == precision]
            reports.append(
                TensorReport(
                    name=layer.name,
                    read_by=tuple(f"{use.file} {use.kind} {use.name}" for use in readers),
                    shape=(layer.rows.shape[0], layer.rows.shape[1]),
                    precision=precision,
                    snr_db=error,
                    bytes=nbytes,
                    fp32_bytes=layer.rows.nbytes,
                )
            )
        done += layer.rows.size
        progress(done / size)
    return reports


def stored(layer: Layer, precision: Precision, round_blocks: RoundBlocks) -> tuple[float | None, int]:
    """Return the signal-to-noise ratio in dB and the size in bytes of a weight; see :class:`TensorReport`.

    Args:
        layer: the weight.
        precision: the precision in which it is stored.
        round_blocks: rounds weights in blocks.
    """
    rows, strategy = layer.rows, STRATEGIES.get(precision)
    if strategy is None:
        return None, rows.nbytes
    read, nbytes = strategy.stored(layer, round_blocks)
    noise = _noise(rows, read)
    signal = _noise(rows, lambda part: np.zeros(1, np.float32))
    return None if noise == 0 or signal == 0 else round(10 * math.log10(signal / noise), 2), nbytes


def _noise(rows: NDArray[np.float32], rounded: Callable[[slice], NDArray[np.float32]]) -> float:
    """Sum the squared errors of a weight, given what some of its rows are rounded to."""
    return sum(float(np.square(rows[part] - rounded(part), dtype=np.float64).sum()) for part in row_slices(rows))
