"""Forced steps: what the targets of a batch begin with, and what they are padded with."""

from __future__ import annotations

import numpy as np

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.forced_steps import forced_batch


def test_targets_begin_with_what_all_begin_with_and_are_padded() -> None:
    batch = forced_batch([((5, 6, 3), (7,)), ((8, 3), (9, 4, 5)), ((3,), ())], SpecialTokens(prefix=(6,)))
    assert batch.source.tolist() == [[5, 6, 3], [8, 3, 0], [3, 0, 0]]
    assert batch.source_length.tolist() == [3, 2, 1]
    assert batch.target.tolist() == [[2, 6, 7, 3, 3], [2, 6, 9, 4, 5], [2, 6, 3, 3, 3]]
    assert batch.target_length.tolist() == [3, 5, 2]
    assert {array.dtype for array in batch} == {np.dtype(np.int64)}
