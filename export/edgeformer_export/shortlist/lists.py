"""Makes shortlists: from a corpus, or from those of an imported model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from edgeformer_export.shortlist.alignment import align
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.decoding.forced_steps import Pair
from edgeformer_runtime.shortlist import Shortlist

ALWAYS = 100
"""Number of frequent tokens that every sentence may use."""
BEST = 50
"""Maximum number of target tokens of a source token."""


def learned(
    pairs: Sequence[Pair],
    source_vocab_size: int,
    target_vocab_size: int,
    special: SpecialTokens,
    *,
    always: int = ALWAYS,
    best: int = BEST,
) -> Shortlist:
    """Make a shortlist from sentence pairs, by word alignment.

    Args:
        pairs: token ids of source and target.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
        special: special tokens of the target; those that are never generated are in no list.
        always: number of frequent tokens that every sentence may use; the end token is one of them.
        best: maximum number of target tokens of a source token.
    """
    table = align(pairs, source_vocab_size, target_vocab_size)
    never = {special.bos, special.pad, *special.suppress, *special.forbid} - {special.eos}
    allowed = ~np.isin(table.target, list(never))
    source, target = table.source[allowed], table.target[allowed]
    order = np.lexsort((target, -table.count[allowed], source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = rank < best
    ends = np.cumsum(np.bincount(source[kept], minlength=source_vocab_size))
    counts = np.bincount([token for _, tokens in pairs for token in tokens], minlength=target_vocab_size)
    return Shortlist(always, ends, by_frequency(counts, special.eos, never), target[kept])


def by_frequency(counts: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]], eos: int, never: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Order all target tokens: the end token, the others from most to least frequent, and those never generated."""
    rank = np.asarray(counts, np.float64).copy()
    rank[list(never)] = -1
    rank[eos] = np.inf
    return np.argsort(-rank, kind="stable")
