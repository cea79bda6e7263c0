"""Batches: every sentence once, longest first, within the bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.search.requests import MAX_ROWS, length_sorted_batches, pad

LENGTHS = st.lists(st.integers(0, 60), max_size=40)


@given(LENGTHS, st.integers(1, 6), st.integers(1, 400))
def test_batches_hold_every_index_once_longest_first_in_bounds(lengths: list[int], beam: int, bound: int) -> None:
    batches = list(length_sorted_batches(lengths, beam, bound))
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert flat == sorted(flat, key=lambda index: (-lengths[index], index))
    assert all(batches)
    for batch in batches:
        longest = max(1, *(lengths[index] for index in batch), 1)
        assert len(batch) == 1 or beam * len(batch) * longest <= bound
    for batch in batches[:-1]:
        longest = max(1, lengths[batch[0]])
        assert beam * (len(batch) + 1) * longest > bound


@pytest.mark.parametrize("beam", [1, 3, 32, MAX_ROWS, MAX_ROWS + 1])
def test_a_step_has_no_more_rows_than_the_maximum(beam: int) -> None:
    sizes = [len(batch) for batch in length_sorted_batches([1] * (2 * MAX_ROWS), beam, 2**31)]
    assert sizes[0] == max(1, MAX_ROWS // beam)
    assert all(size == sizes[0] for size in sizes[:-1])


@pytest.mark.parametrize("pad_id", [0, 7])
def test_pad(pad_id: int) -> None:
    padded, length = pad([[1, 2, 3], [], [4]], pad_id)
    assert padded.tolist() == [[1, 2, 3], [pad_id] * 3, [4, pad_id, pad_id]]
    assert length.tolist() == [3, 0, 1]
    assert padded.dtype == length.dtype == np.int64
    assert padded.flags.c_contiguous
