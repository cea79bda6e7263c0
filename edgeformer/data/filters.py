"""Filtering of the sentence pairs to train on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edgeformer.data.text import Pair


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
    pairs: Iterable[Pair], *, max_words: int = 80, max_ratio: float = 9.0
) -> tuple[list[Pair], FilterReport]:
    """Drop pairs that are empty, too long, of very different lengths, or repeated; keep the order of the others.

    Args:
        pairs: source and target sentences.
        max_words: maximum number of whitespace-separated words on either side.
        max_ratio: maximum ratio between the numbers of words of the sides, after adding one to each.
    """
    kept: dict[Pair, None] = {}  # an ordered set
    dropped = {"empty": 0, "too_long": 0, "ratio": 0, "duplicate": 0}
    for source, target in pairs:
        shorter, longer = sorted((len(source.split()), len(target.split())))
        if shorter == 0:
            dropped["empty"] += 1
        elif longer > max_words:
            dropped["too_long"] += 1
        elif (longer + 1) / (shorter + 1) > max_ratio:
            dropped["ratio"] += 1
        elif (source, target) in kept:
            dropped["duplicate"] += 1
        else:
            kept[source, target] = None
    return list(kept), FilterReport(kept=len(kept), **dropped)
