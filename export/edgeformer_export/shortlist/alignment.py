"""Which target token a source token becomes: IBM model 1 (Brown et al. 1993), trained on pairs of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.decoding.forced_steps import Pair

ROUNDS = 5
"""Rounds of expectation maximization; the likelihood hardly changes after these."""
NULL = 1
"""Number of places for the empty source word, which explains target tokens that no source token does."""


@dataclass(frozen=True)
class TranslationTable:
    """Probabilities of target tokens by source token; only pairs that occur together have an entry."""

    source: NDArray[np.int64]
    """Source token of each entry, ascending, ``(E,)``."""
    target: NDArray[np.int64]
    """Target token of each entry, ``(E,)``."""
    probability: NDArray[np.float64]
    """Probability of the target token, given the source token, ``(E,)``; those of a source token add up to 1."""
    count: NDArray[np.float64]
    """Expected number of times that the source token becomes the target token, ``(E,)``."""


def align(pairs: Sequence[Pair], source_vocab_size: int, target_vocab_size: int) -> TranslationTable:
    """Estimate translation probabilities from sentence pairs.

    Args:
        pairs: token ids of source and target.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
    """
    null = source_vocab_size  # one more source token
    keys, places, at = [], [], 0
    for source, target in pairs:
        row = np.array([*set(source), *[null] * NULL], np.int64)
        column = np.asarray(target, np.int64)
        keys.append((row[None, :] * target_vocab_size + column[:, None]).ravel())
        places.append(np.repeat(np.arange(at, at + len(column)), len(row)))
        at += len(column)
    entry, index = np.unique(np.concatenate(keys), return_inverse=True)
    place = np.concatenate(places)  # which target position each link explains
    source_of, target_of = np.divmod(entry, target_vocab_size)
    probability = count = np.ones(len(entry), np.float64)
    for _ in range(ROUNDS):
        weight = probability[index]
        weight /= np.bincount(place, weight)[place]
        count = np.bincount(index, weight).astype(np.float64)
        probability = count / np.bincount(source_of, count)[source_of]
    words = source_of != null
    return TranslationTable(source_of[words], target_of[words], probability[words], count[words])
