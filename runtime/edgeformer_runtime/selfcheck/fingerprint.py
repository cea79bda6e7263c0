"""What a tensor looked like, in a few numbers that tell how much another one differs from it."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

Fingerprint = tuple[float, ...]
"""Root mean square of a tensor, then its projections: sums of all values with random signs, over the root of their
number. Two tensors' projections differ by about the root mean square of their difference, wherever they differ."""

PROJECTIONS = 6
NOT_FINITE: Fingerprint = (-1.0,)
"""Of a tensor with a value that is not a number, or infinite."""


def fingerprint(array: NDArray[np.generic]) -> Fingerprint:
    """Fingerprint of a tensor of numbers of any shape and type, with six significant digits."""
    values = np.asarray(array, np.float64).ravel()
    if not np.isfinite(values).all():
        return NOT_FINITE
    root = np.sqrt(max(1, values.size))
    numbers = [np.sqrt(np.square(values).sum()), *(values @ _signs(values.size, index) for index in range(PROJECTIONS))]
    return tuple(float(f"{number / root:.6g}") for number in numbers)


def relative_difference(found: Fingerprint, expected: Fingerprint) -> float:
    """Estimate of the root mean square of the difference of two tensors, over that of the expected one.

    It is within a half of the true value. Infinite if the tensor found holds what is not a number.
    """
    if len(found) != len(expected):
        return inf
    if expected == NOT_FINITE:
        return 0.0
    difference = np.sqrt(np.mean(np.square(np.subtract(found[1:], expected[1:]))))
    return _ratio(float(difference), expected[0])


def relative_error(found: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Root mean square of the difference of two tensors with as many values, over that of the expected one.

    Infinite if the tensor found holds what is not a number.
    """
    wanted = np.asarray(expected, np.float64).ravel()
    difference = np.asarray(found, np.float64).ravel() - wanted
    if not np.isfinite(difference).all():
        return inf
    return _ratio(float(np.linalg.norm(difference)), float(np.linalg.norm(wanted)))


def _ratio(difference: float, size: float) -> float:
    return 0.0 if difference == 0 else difference / size if size > 0 else inf


def _signs(count: int, index: int) -> NDArray[np.float64]:
    """Plus and minus one, from a hash of the position."""
    position = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (position ^ (position >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return 1.0 - 2.0 * ((mixed >> np.uint64(63 - index)) & np.uint64(1)).astype(np.float64)
