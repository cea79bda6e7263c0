"""Position tables of other toolkits, each as its own engine computes it."""

from __future__ import annotations

import numpy as np

from edgeformer.importers.model import FloatArray


def halves(length: int, width: int, *, denominator: float, start: int = 0) -> FloatArray:
    """Sines in the left half and cosines in the right one, in float32.

    Args:
        length: number of positions.
        width: width of the table (D).
        denominator: what divides the index of a frequency: ``D / 2 - 1`` in Marian and in fairseq, so that the lowest
            frequency is exactly 1 / 10,000, and ``D / 2`` in the ports to Hugging Face's Marian and to CTranslate2.
        start: number of the first position.
    """
    position = np.arange(start, start + length, dtype=np.float64)[:, None]
    frequency = np.exp(-np.log(10_000.0) * np.arange(width // 2) / denominator)
    angle = position * frequency
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1).astype(np.float32)
