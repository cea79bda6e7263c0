"""Shortlists: the lists themselves, and their file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.search.shortlist import MULTIPLE, Shortlist, read_shortlist
from tests.amounts import examples

FEW = examples(10, 60, derandomize=True)


@st.composite
def shortlists(draw: st.DrawFn) -> Shortlist:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    sources, targets = draw(st.integers(1, 30)), draw(st.integers(1, 700) | st.just(70_000))
    sizes = random.integers(0, min(targets, 60), sources) * (random.random(sources) < 0.8)
    lists = [random.permutation(targets)[:size] for size in sizes]
    tokens = np.concatenate([*lists, np.empty(0, np.int64)]).astype(np.int64)
    always = draw(st.integers(1, min(targets, 50)))
    return Shortlist(always, np.cumsum(sizes), random.permutation(targets), tokens)


def list_of(shortlist: Shortlist, token: int) -> set[int]:
    start = int(shortlist.ends[token - 1]) if token else 0
    return set(shortlist.tokens[start : shortlist.ends[token]].tolist())


@FEW
@given(shortlists(), st.data())
def test_a_sentence_may_use_frequent_tokens_and_those_of_its_own(shortlist: Shortlist, data: st.DataObject) -> None:
    token = st.integers(0, len(shortlist.ends) - 1)
    sources = data.draw(st.lists(st.lists(token, min_size=1, max_size=8), min_size=1, max_size=5))
    expected = [
        set(shortlist.frequent[: shortlist.always].tolist()).union(*(list_of(shortlist, token) for token in source))
        for source in sources
    ]
    together, usable = shortlist.listed_together(sources)
    assert usable.shape == (len(sources), len(together))
    assert (np.diff(together) > 0).all()
    assert len(together) % MULTIPLE == 0 or len(together) == len(shortlist.frequent)
    for source, row, tokens in zip(sources, usable, expected, strict=True):
        assert set(np.flatnonzero(shortlist.usable(source)).tolist()) == tokens
        assert set(together[row].tolist()) == tokens, "whatever the other sentences are"


@FEW
@given(shortlists())
def test_a_shortlist_is_read_as_it_was_written(shortlist: Shortlist) -> None:
    sizes = len(shortlist.ends), len(shortlist.frequent)
    read = read_shortlist(shortlist.to_bytes(), *sizes)
    assert read.always == shortlist.always
    for name in ("ends", "frequent", "tokens"):
        np.testing.assert_array_equal(getattr(read, name), getattr(shortlist, name))
    with pytest.raises(BundleError, match="other vocabularies"):
        read_shortlist(shortlist.to_bytes(), sizes[0] + 1, sizes[1])


@examples(30, 300, derandomize=True)
@given(shortlists(), st.data())
def test_damaged_lists_are_refused_or_are_lists(shortlist: Shortlist, data: st.DataObject) -> None:
    content = bytearray(shortlist.to_bytes())
    sizes = len(shortlist.ends), len(shortlist.frequent)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(content)))
    try:
        read = read_shortlist(bytes(content[:cut]), *sizes)
    except BundleError:
        return
    together, usable = read.listed_together([list(range(sizes[0]))])
    assert usable.any(axis=0).sum() <= sizes[1]
    assert set(together.tolist()) <= set(range(sizes[1]))
