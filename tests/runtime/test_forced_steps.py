"""Forced steps: given targets are padded, fed token by token, and each row sees its own prefix."""

from __future__ import annotations

import numpy as np

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.forced_steps import forced_batch, forced_steps
from tests.toy import ToySession

PAIRS = [((5, 6, 3), (7,)), ((8, 3), (9, 4, 5)), ((3,), ())]


def test_targets_begin_with_what_all_begin_with_and_are_padded() -> None:
    batch = forced_batch(PAIRS, SpecialTokens(prefix=(6,)))
    assert batch.source.tolist() == [[5, 6, 3], [8, 3, 0], [3, 0, 0]]
    assert batch.source_length.tolist() == [3, 2, 1]
    assert batch.target.tolist() == [[2, 6, 7, 3, 3], [2, 6, 9, 4, 5], [2, 6, 3, 3, 3]]
    assert batch.target_length.tolist() == [3, 5, 2]
    assert {array.dtype for array in batch} == {np.dtype(np.int64)}


def test_every_row_is_fed_its_own_target() -> None:
    session = ToySession(vocab_size=10)
    batch = forced_batch(PAIRS, session.special)
    steps = list(forced_steps(session.start(batch.source, batch.source_length), batch.target))
    assert len(steps) == batch.target.shape[1]
    for row, (source, target) in enumerate(PAIRS):
        for position in range(batch.target_length[row]):
            np.testing.assert_array_equal(steps[position][row], session.logits(source, target[:position]))


def test_the_shape_of_a_state_tensor_follows_the_sizes_of_its_letters() -> None:
    tensor = StateTensor(name="key", kind="cache", dtype="float32", axes=("R", 4, "P", 16))
    assert tensor.shape({"R": 6, "P": 0, "S": 9}) == (6, 4, 0, 16)
