"""Fingerprints: a few numbers that tell how much two tensors differ."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeformer_runtime.selfcheck.fingerprint import (
    NOT_FINITE,
    PROJECTIONS,
    fingerprint,
    relative_difference,
    relative_error,
)


def random(seed: int = 0, shape: tuple[int, ...] = (1, 7, 64)) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_a_fingerprint_is_the_root_mean_square_and_some_projections() -> None:
    tensor = random()
    values = fingerprint(tensor)
    assert len(values) == 1 + PROJECTIONS
    assert values[0] == pytest.approx(float(np.sqrt(np.square(tensor).mean())), rel=1e-5)
    assert fingerprint(tensor.reshape(-1)) == values
    assert len(set(values)) == len(values)


def test_the_same_numbers_on_every_machine() -> None:
    assert fingerprint(np.arange(1, 9)) == (5.04975, -2.12132, -9.89949, -9.19239, 2.12132, -4.94975, -0.707107)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 0.5])
def test_the_difference_is_about_that_of_the_tensors(size: float) -> None:
    estimates = []
    for seed in range(20):
        tensor, noise = random(seed), random(seed + 100)
        changed = (tensor + np.float32(size) * noise).astype(np.float32)
        estimates.append(
            relative_difference(fingerprint(changed), fingerprint(tensor)) / relative_error(changed, tensor)
        )
    assert min(estimates) > 0.2
    assert max(estimates) < 2.5
    assert 0.8 < float(np.mean(estimates)) < 1.2


@pytest.mark.parametrize("place", [0, 200, 447])
def test_one_changed_value_is_seen_wherever_it_is(place: int) -> None:
    tensor = random()
    changed = tensor.copy()
    changed.reshape(-1)[place] += 3
    # 3 / sqrt(448) of a root mean square of one
    assert relative_difference(fingerprint(changed), fingerprint(tensor)) == pytest.approx(3 / 448**0.5, rel=0.1)


def test_swapped_rows_and_a_turned_sign_are_differences() -> None:
    tensor = random()
    for changed in (tensor[:, ::-1], -tensor, np.roll(tensor, 1, axis=2)):
        assert relative_difference(fingerprint(changed), fingerprint(tensor)) > 0.5


def test_what_is_no_number_is_infinitely_different() -> None:
    tensor = random()
    broken = tensor.copy()
    broken[0, 3, 5] = np.nan
    assert fingerprint(broken) == NOT_FINITE
    assert relative_difference(NOT_FINITE, fingerprint(tensor)) == inf
    assert relative_error(broken, tensor) == inf
    assert relative_difference(NOT_FINITE, NOT_FINITE) == 0


def test_zeros_and_the_largest_numbers_are_compared_too() -> None:
    zeros, mask = np.zeros(5, np.int32), np.full((1, 3), np.finfo(np.float32).min)
    assert relative_difference(fingerprint(zeros), fingerprint(zeros)) == 0
    assert relative_difference(fingerprint(zeros + 1), fingerprint(zeros)) == inf
    assert relative_difference(fingerprint(0 * mask), fingerprint(mask)) > 0.5
    assert fingerprint(np.empty((0, 3))) == (0.0,) * (1 + PROJECTIONS)
