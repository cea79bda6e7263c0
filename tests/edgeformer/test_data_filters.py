"""Filters and splits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.data.filters import FilterReport, filter_pairs, split_by_source
from edgeformer.data.text import TextPairs
from edgeformer.errors import DataError
from tests.amounts import examples

SENTENCES = st.text(alphabet="ab \u00a0", max_size=12)
PAIRS = st.lists(st.tuples(SENTENCES, SENTENCES), max_size=40)


def test_each_reason_is_counted() -> None:
    pairs = [
        ("a", "b"),
        ("", "b"),
        ("a", " \u202f"),
        ("a b c d", "x"),
        ("a b c", "x"),
        ("a", "b"),
        ("a", "c"),
    ]
    kept, report = filter_pairs(lambda: pairs, max_words=3, max_ratio=1.5)
    assert list(kept) == [("a", "b"), ("a", "c")]
    assert report == FilterReport(kept=2, empty=2, too_long=1, ratio=1, duplicate=1)
    assert report.summary() == "kept 2 of 7 pairs; dropped 2 empty, 1 too long, 1 length ratio, 1 duplicate"
    assert msgspec.json.decode(msgspec.json.encode(report), type=FilterReport) == report


def test_limits_are_inclusive() -> None:
    pairs = [("a b c", "x")]
    assert list(filter_pairs(lambda: pairs, max_words=3, max_ratio=2.0)[0]) == pairs
    assert filter_pairs(list, max_words=1)[1].summary() == "kept 0 of 0 pairs"


@examples(25, 100)
@given(pairs=PAIRS, max_words=st.integers(1, 4), max_ratio=st.floats(1, 3))
def test_what_is_kept(pairs: list[tuple[str, str]], max_words: int, max_ratio: float) -> None:
    filtered, report = filter_pairs(lambda: pairs, max_words=max_words, max_ratio=max_ratio)
    kept = list(filtered)
    assert report.total == len(pairs)
    assert report.kept == len(kept) == len(set(kept))
    for source, target in kept:
        lengths = sorted((len(source.split()), len(target.split())))
        assert lengths[0] >= 1
        assert lengths[1] <= max_words
        assert (lengths[1] + 1) / (lengths[0] + 1) <= max_ratio
    assert list(filter_pairs(lambda: kept, max_words=max_words, max_ratio=max_ratio)[0]) == kept
    first = [pairs.index(pair) for pair in kept]
    assert first == sorted(first), "the first of several equal pairs is kept, in the order of the text"


@examples(25, 100)
@given(pairs=PAIRS, valid_size=st.integers(0, 5), test_size=st.integers(0, 5), seed=st.integers(0, 3))
def test_no_source_is_on_two_sides(pairs: list[tuple[str, str]], valid_size: int, test_size: int, seed: int) -> None:
    sources = {source for source, _ in pairs}
    if len(sources) <= valid_size + test_size:
        with pytest.raises(DataError, match=f"but has {len(sources)}"):
            split_by_source(TextPairs.of(pairs), valid_size=valid_size, test_size=test_size, seed=seed)
        return
    split = split_by_source(TextPairs.of(pairs), valid_size=valid_size, test_size=test_size, seed=seed)
    parts = [{source for source, _ in part} for part in split]
    assert [len(part) for part in parts] == [len(sources) - valid_size - test_size, valid_size, test_size]
    assert sorted(pair for part in split for pair in part) == sorted(pairs)


def test_split_depends_on_seed_and_sources_alone() -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(300)]
    split = split_by_source(TextPairs.of(pairs), valid_size=30, test_size=40, seed=1)
    doubled = split_by_source(TextPairs.of(pairs[::-1], pairs), valid_size=30, test_size=40, seed=1)
    assert {source for source, _ in split.test} == {source for source, _ in doubled.test}
    assert {source for source, _ in split.valid} == {source for source, _ in doubled.valid}
    other = split_by_source(TextPairs.of(pairs), valid_size=30, test_size=40, seed=2)
    assert set(split.test) != set(other.test)
    # Pinned: a change of the hash would change every published test set.
    assert sorted(int(source.split()[1]) for source, _ in split.test)[:5] == [5, 24, 25, 26, 30]
