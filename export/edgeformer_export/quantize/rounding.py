"""Calibrated rounding to 4 bits: changes the results of typical inputs as little as possible.

A row ``w`` of a weight becomes ``v``: integers, times one scale per block. If its inputs ``x`` have the second moments
``H = E[x xᵀ]``, the mean squared error of its product is ``(w - v)ᵀ H (w - v)``. Rounding every number to the nearest
integer is best only for inputs that are not correlated. Instead:

1. *GPTQ* (Frantar et al. 2023, https://arxiv.org/abs/2210.17323) rounds one column after another, those with the
   largest inputs first, and after each one moves the columns that are still to be rounded to where the error so far
   costs least. With ``H⁻¹ = Uᵀ U``, U upper triangular, an error ``e`` in column j moves column k by
   ``-e U[j, k] / U[j, j]``.
2. *Coordinate descent* (QuantEase, Behdin et al. 2023, https://arxiv.org/abs/2309.01885) alternates between the best
   scale of each block for the given integers, and the best integer in each column for all others.

Step 1 uses the scales of :func:`~edgeformer_export.quantize.blocks.quantize_blocks`, with the least squared error of
the weights. Scales with the least error of the product leave less room to correct the errors of other columns: after
both steps, the error was up to 7 % larger.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeformer_export.quantize.blocks import Int4Blocks, four_bits, pack_blocks, quantize_blocks

Matrix = NDArray[np.float32]

DAMPING = 0.1
"""Fraction of the mean second moment that is added to each: the moments of a few thousand inputs are uncertain."""
SWEEPS = 2
"""Rounds of coordinate descent; more change hardly anything."""
STEP = 64
"""Columns after which the other columns are corrected, in one matrix product."""
VALUES = 1 << 21
"""Number of weights rounded at a time; bounds the memory."""


def round_for_inputs(matrix: Matrix, moment: Matrix, block_size: int) -> Int4Blocks:
    """Round a matrix to 4 bits, symmetrically, with one scale for each block of a row.

    Args:
        matrix: ``(rows, width)``.
        moment: second moments of its inputs, in any unit, ``(width, width)``.
        block_size: number of values that share a scale.
    """
    damped = moment.astype(np.float64)
    mean = float(np.diag(damped).mean())
    damped = damped / mean if mean > 0 else damped
    damped[np.diag_indices_from(damped)] += DAMPING
    order = np.argsort(-np.diag(damped), kind="stable")
    correction, moment = _corrections(damped[np.ix_(order, order)]), damped.astype(np.float32)

    nearest = quantize_blocks(matrix, block_size)
    integers, scales = np.empty(matrix.shape, np.int8), nearest.scales.copy()
    step = max(1, VALUES // matrix.shape[1])
    for start in range(0, len(matrix), step):
        part = slice(start, start + step)
        # Columns are rounded for all rows at a time, so they are the rows of these arrays: (width, rows).
        weights, of_blocks = (np.ascontiguousarray(array[part].T) for array in (matrix, scales))
        rounded = _error_compensated(weights, _spread(of_blocks, block_size, len(weights)), order, correction)
        for _ in range(SWEEPS):
            _fit_scales(weights, rounded, of_blocks, moment, block_size)
            _descend(weights, rounded, _spread(of_blocks, block_size, len(weights)), moment)
        _fit_scales(weights, rounded, of_blocks, moment, block_size)
        integers[part], scales[part] = rounded.T, of_blocks.T
    return pack_blocks(integers, scales, block_size)


def _corrections(moment: NDArray[np.float64]) -> Matrix:
    """Compute ``U[j, k] / U[j, j]``, with which an error in column j moves column k."""
    inverse = np.linalg.inv(moment)
    upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
    scaled: Matrix = (upper / np.diag(upper)[:, None]).astype(np.float32)
    return scaled


def _error_compensated(weights: Matrix, scale: Matrix, order: NDArray[np.intp], correction: Matrix) -> Matrix:
    """Round column by column, and correct the columns that follow (GPTQ).

    Args:
        weights: transposed weights, ``(width, rows)``.
        scale: scale of each weight, of the same shape.
        order: columns in the order of rounding, ``(width,)``.
        correction: see :func:`_corrections`; in the order of rounding.

    Returns:
        Integers, transposed like the weights.
    """
    left, scale = weights[order], scale[order]
    integers, errors = np.empty_like(left), np.empty_like(left)
    for start in range(0, len(left), STEP):
        end = min(start + STEP, len(left))
        for column in range(start, end):
            integers[column] = four_bits(left[column], scale[column])
            errors[column] = left[column] - integers[column] * scale[column]
            left[column + 1 : end] -= correction[column, column + 1 : end, None] * errors[column]
        left[end:] -= correction[start:end, end:].T @ errors[start:end]
    unordered = np.empty_like(integers)
    unordered[order] = integers
    return unordered


def _fit_scales(weights: Matrix, integers: Matrix, scales: Matrix, moment: Matrix, block_size: int) -> None:
    """Give each block in turn the scale with the least error of the product; ``scales`` is modified in place.

    Args:
        weights: transposed weights, ``(width, rows)``.
        integers: transposed integers.
        scales: transposed scales, ``(blocks, rows)``.
        moment: damped second moments.
        block_size: number of values that share a scale.
    """
    slope = moment @ (weights - integers * _spread(scales, block_size, len(weights)))
    for number, start in enumerate(range(0, len(weights), block_size)):
        block = slice(start, start + block_size)
        effect = moment[:, block] @ integers[block]
        curvature = np.einsum("ij,ij->j", integers[block], effect[block])
        change = np.einsum("ij,ij->j", integers[block], slope[block]) / np.where(curvature > 0, curvature, 1)
        scales[number] += np.where(scales[number] + change == 0, 0, change)
        slope -= effect * change


def _descend(weights: Matrix, integers: Matrix, scale: Matrix, moment: Matrix) -> None:
    """Give each column in turn the integers with the least error of the product; modified in place.

    Args:
        weights: transposed weights, ``(width, rows)``.
        integers: transposed integers.
        scale: scale of each weight, of the same shape.
        moment: damped second moments.
    """
    slope = moment @ (weights - integers * scale)
    for start in range(0, len(weights), STEP):
        inside = slice(start, min(start + STEP, len(weights)))
        before = integers[inside] * scale[inside]
        for column in range(start, inside.stop):
            ideal = integers[column] * scale[column] + slope[column] / moment[column, column]
            change = four_bits(ideal, scale[column]) - integers[column]
            integers[column] += change
            slope[inside] -= moment[inside, column, None] * (change * scale[column])
        change = integers[inside] * scale[inside] - before
        for outside in (slice(0, start), slice(inside.stop, None)):
            slope[outside] -= moment[outside, inside] @ change


def _spread(scales: Matrix, block_size: int, width: int) -> Matrix:
    """Repeat transposed scales ``(blocks, rows)`` for every weight, ``(width, rows)``."""
    return np.repeat(scales, block_size, axis=0)[:width]
