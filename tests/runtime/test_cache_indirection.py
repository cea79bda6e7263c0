"""The cache indirection names, for every beam and position, the row that wrote the entry."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer_runtime.engine.cache_indirection import CacheIndirection


def test_the_picture_in_the_documentation() -> None:
    indirection = CacheIndirection(sentences=1, beams=2, capacity=4)
    indirection.select(np.array([0, 0]), None, length=2)
    indirection.select(np.array([0, 1]), None, length=3)
    assert indirection.table.tolist() == [[[0, 0, 0, 0], [0, 0, 1, 1]]]
    assert indirection.beam_width.tolist() == [2]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 7), st.randoms(use_true_random=False))
def test_every_beam_finds_the_tokens_that_it_continues(sentences: int, beams: int, steps: int, random: Random) -> None:
    """A model of the caches: each row writes its token, and reads the past through the indirection."""
    indirection = CacheIndirection(sentences, beams, capacity=2)
    cache = np.full((sentences, beams, steps), -1)
    prefixes: list[list[list[int]]] = [[[] for _ in range(beams)] for _ in range(sentences)]
    token = 0
    for position in range(steps):
        if position == indirection.table.shape[2]:
            indirection.widen(2 * position)
        for sentence in range(sentences):
            for beam in range(beams):
                token += 1
                cache[sentence, beam, position] = token
                prefixes[sentence][beam].append(token)
        parents = [[random.randrange(beams) for _ in range(beams)] for _ in range(sentences)]
        kept = np.arange(sentences)
        drop = sentences > 1 and position == steps // 2
        if drop:
            kept, sentences, parents = kept[:0:-1].copy(), sentences - 1, parents[:0:-1]
            cache, prefixes = cache[kept], [prefixes[index] for index in kept]
        rows = (kept[:, None] * beams + np.array(parents)).ravel()
        indirection.select(rows, kept if drop else None, position + 1)
        prefixes = [[list(prefixes[sentence][parent]) for parent in parents[sentence]] for sentence in range(sentences)]
        past = np.take_along_axis(cache[:, :, : position + 1], indirection.table[:, :, : position + 1], axis=1)
        assert past.tolist() == prefixes
