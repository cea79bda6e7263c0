"""Filtering of the sentence pairs to train on, and their split into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from edgeformer.data.text import Pair, TextPairs
from edgeformer.errors import DataError


class FilterReport(msgspec.Struct, kw_only=True, frozen=True):
    """Number of pairs kept, and dropped by reason; a pair counts under the first reason that applies."""

    kept: int
    """Pairs kept."""
    empty: int
    """Pairs with a side of nothing but whitespace."""
    too_long: int
    """Pairs with a side of more than ``max_words`` words."""
    ratio: int
    """Pairs whose lengths differ by more than ``max_ratio``."""
    duplicate: int
    """Pairs that repeat an earlier one exactly."""

    @property
    def total(self) -> int:
        """Pairs read."""
        return self.kept + self.dropped

    @property
    def dropped(self) -> int:
        """Pairs dropped."""
        return self.empty + self.too_long + self.ratio + self.duplicate

    def summary(self) -> str:
        """One line for humans."""
        reasons = {
            "empty": self.empty,
            "too long": self.too_long,
            "length ratio": self.ratio,
            "duplicate": self.duplicate,
        }
        listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)
        return f"kept {self.kept:,} of {self.total:,} pairs" + (f"; dropped {listed}" if listed else "")


def filter_pairs(
    read: Callable[[], Iterable[Pair]], *, max_words: int = 80, max_ratio: float = 9.0, keep_repeated: bool = False
) -> tuple[TextPairs, FilterReport]:
    """Drop pairs that are empty, too long, of very different lengths, or repeated; keep the order of the others.

    Memory has 17 bytes a pair, and twice as much while it looks for repetitions.

    Args:
        read: reads source and target sentences, always the same ones.
        max_words: maximum number of whitespace-separated words on either side.
        max_ratio: maximum ratio between the numbers of words of the sides, after adding one to each.
        keep_repeated: keep pairs that repeat an earlier one.
    """
    flags, digests = bytearray(), bytearray()
    dropped = {"empty": 0, "too_long": 0, "ratio": 0}
    for source, target in read():
        flags.append(0)
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if shorter == 0:
            dropped["empty"] += 1
        elif longer > max_words:
            dropped["too_long"] += 1
        elif (longer + 1) / (shorter + 1) > max_ratio:
            dropped["ratio"] += 1
        else:
            flags[-1] = 1
            digests += hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
    first, second = np.frombuffer(digests, np.uint64).reshape(-1, 2).T
    order = np.lexsort((second, first))  # stable: of equal pairs, the one that was read first comes first
    first, second = first[order], second[order]
    is_repeated = np.zeros(len(order), np.bool_)
    if not keep_repeated:
        is_repeated[order[1:]] = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    pairs = TextPairs(read, np.frombuffer(flags, np.bool_)).where(~is_repeated)
    return pairs, FilterReport(kept=len(pairs), duplicate=int(is_repeated.sum()), **dropped)


def sum_of(reports: Sequence[FilterReport]) -> FilterReport:
    """Add up the numbers of several reports."""
    fields = FilterReport.__struct_fields__
    return FilterReport(**{field: sum(getattr(report, field) for report in reports) for field in fields})


class CorpusSplit(NamedTuple):
    """Three parts that share no source sentence, in the order of the corpus."""

    train: TextPairs
    valid: list[Pair]
    test: list[Pair]


def split_by_source(pairs: TextPairs, *, valid_size: int, test_size: int, seed: int) -> CorpusSplit:
    """Split by a hash of the source sentence; all pairs of a source go to the same part.

    The part depends on the seed and the set of source sentences, not on their order or repetitions.

    Args:
        pairs: source and target sentences.
        valid_size: number of distinct source sentences for validation; there may be more pairs.
        test_size: number of distinct source sentences for testing.
        seed: determines the split.

    Raises:
        DataError: no source sentence would be left for training.
    """
    key, count = hashlib.blake2b(str(seed).encode(), digest_size=32).digest(), valid_size + test_size
    hashes = bytearray()
    for source, _ in pairs:
        hashes += _digest(source, key)
    ranks = np.frombuffer(hashes, ">u8").astype(np.uint64)
    distinct = np.unique(ranks)
    if len(distinct) <= count:
        raise DataError(
            f"The corpus must have more than {count:,} distinct source sentences "
            f"(`data.valid_size` + `data.test_size`), but has {len(distinct):,}; lower these sizes or add text."
        )
    near = ranks < distinct[count]  # has every sentence that is held out; should hashes be equal, more than these
    candidates = list(pairs.where(near))
    ranked = sorted({source for source, _ in candidates}, key=lambda source: (_digest(source, key), source))
    parts = [set(ranked[:test_size]), set(ranked[test_size:count])]
    test, valid = ([pair for pair in candidates if pair[0] in part] for part in parts)
    near[near] = [any(source in part for part in parts) for source, _ in candidates]
    return CorpusSplit(pairs.where(~near), valid, test)


def _digest(source: str, key: bytes) -> bytes:
    return hashlib.blake2b(source.encode("utf-8"), digest_size=8, key=key).digest()
