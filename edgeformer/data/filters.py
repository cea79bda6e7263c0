"""Filtering of the sentence pairs to train on, the spaces of French punctuation, and the split into parts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from edgeformer.data.text import Pair
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
    digits: int = 0
    """Pairs whose sides have different digits."""

    @property
    def total(self) -> int:
        """Pairs read."""
        return self.kept + self.dropped

    @property
    def dropped(self) -> int:
        """Pairs dropped."""
        return self.empty + self.too_long + self.ratio + self.duplicate + self.digits

    def summary(self) -> str:
        """One line for humans."""
        reasons = {
            "empty": self.empty,
            "too long": self.too_long,
            "length ratio": self.ratio,
            "duplicate": self.duplicate,
            "different digits": self.digits,
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


def drop_other_digits(pairs: list[Pair], report: FilterReport) -> tuple[list[Pair], FilterReport]:
    """Drop pairs whose sides do not have each digit equally often, and count them in the report."""
    kept = [pair for pair in pairs if _digits(pair[0]) == _digits(pair[1])]
    dropped = len(pairs) - len(kept)
    return kept, msgspec.structs.replace(report, kept=report.kept - dropped, digits=report.digits + dropped)


def sum_of(reports: Sequence[FilterReport]) -> FilterReport:
    """Add up the numbers of several reports."""
    fields = FilterReport.__struct_fields__
    return FilterReport(**{field: sum(getattr(report, field) for report in reports) for field in fields})


def _digits(text: str) -> list[str]:
    return sorted(re.findall(r"\d", text))


_NARROW, _WIDE = "\u202f", "\u00a0"
_SPACES = f"[ {_NARROW}{_WIDE}]*"
_RULES = (  # guillemets first: their spaces are what the others look for
    (re.compile(rf"«{_SPACES}"), "«" + _WIDE),
    (re.compile(rf"{_SPACES}»"), _WIDE + "»"),
    (re.compile(rf"(?<=[^\s?!;:(/.]){_SPACES}([?!;]+)(?=$|[\s»\")\]])"), _NARROW + r"\1"),
    (re.compile(rf"(?<=\w){_SPACES}:(?=\s|$)"), _WIDE + ":"),
)


def french_spaces(text: str) -> str:
    """Put a narrow no-break space before ``?``, ``!`` and ``;``, and no-break spaces before colons and in guillemets.

    Question marks and the like inside words, as in addresses, are left alone.
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


class Split(NamedTuple):
    """Three parts that share no source sentence, in the order of the corpus."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def split_by_source(pairs: Sequence[Pair], *, valid_size: int, test_size: int, seed: int) -> Split:
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
    sources = {source for source, _ in pairs}
    if len(sources) <= valid_size + test_size:
        raise DataError(
            f"The corpus must have more than {valid_size + test_size:,} distinct source sentences "
            f"(`data.valid_size` + `data.test_size`), but has {len(sources):,}; lower these sizes or add text."
        )
    key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    ranked = sorted(sources, key=lambda source: (_digest(source, key), source))
    test = set(ranked[:test_size])
    valid = set(ranked[test_size : test_size + valid_size])
    split = Split([], [], [])
    for pair in pairs:
        part = split.test if pair[0] in test else split.valid if pair[0] in valid else split.train
        part.append(pair)
    return split


def _digest(source: str, key: bytes) -> bytes:
    return hashlib.blake2b(source.encode("utf-8"), digest_size=8, key=key).digest()
