"""Spans, compared with what looking at every character and every item would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_text.block import Item, Span, inside
from edgeformer_text.segmentation import fitting_spans, joined_spans, trimmed

PLACES = st.integers(0, 20)


@st.composite
def all_spans(draw: st.DrawFn) -> list[Span]:
    """Disjoint spans in order, some of which touch."""
    edges = sorted(draw(st.lists(PLACES, max_size=12)))
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False) if start < end]


ITEMS = st.builds(
    lambda spans, terms: [Item(start, end, "", "", start in terms) for start, end in spans],
    all_spans(),
    st.sets(PLACES),
)


@given(all_spans(), ITEMS)
def test_sentences_are_joined_exactly_where_an_item_is_divided(spans: list[Span], items: list[Item]) -> None:
    kept = [(a, b) for (_, a), (b, _) in pairwise(spans) if inside(a, items) is None and inside(b, items) is None]
    joined = joined_spans(spans, items)
    assert [(a, b) for (_, a), (b, _) in pairwise(joined)] == kept
    assert joined[:1] == [] or (joined[0][0], joined[-1][1]) == (spans[0][0], spans[-1][1])
    assert bool(joined) == bool(spans)


def best_place(text: str, items: Sequence[Item]) -> int | None:
    """Where to split a text: in its middle half the place nearest to the middle, of the first kind that there is."""
    middle, quarter = len(text) // 2, len(text) // 4
    inner = range(quarter + 1, len(text) - quarter + 1)
    kinds = (
        [place for place in inner if text[place - 1] == "," and text[place : len(text) - quarter][:1] == " "],
        [place for place in inner if text[place - 1 : len(text) - quarter].startswith(" and ")],
        [place for place in inner if text[place - 1] == " "],
    )
    for places in kinds:
        free = [place for place in places if place < len(text) and inside(place, items) is None]
        if free:
            return min(free, key=lambda place: abs(place - middle))
    item = inside(middle, items)
    if item is None:
        return middle or None
    return item.start or (item.end if item.end < len(text) else None)


@given(st.lists(st.sampled_from(["aa", "b", ",", ", ", " and ", " "]), min_size=1).map("".join), ITEMS, PLACES)
def test_a_long_sentence_is_split_where_it_hurts_least(text: str, items: list[Item], before: int) -> None:
    items = [item for item in items if item.end <= len(text)]
    moved = [replace(item, start=before + item.start, end=before + item.end) for item in items]
    found = [
        (start - before, end - before)
        for start, end in fitting_spans(
            "." * before + text, [(before, before + len(text))], moved, len(text) - 1, lambda parts: [*map(len, parts)]
        )
    ]
    place = best_place(text, items)
    if place is None:
        assert found == [(0, len(text))]
    else:
        assert found == [*trimmed(text, 0, place), *trimmed(text, place, len(text))]


@pytest.mark.parametrize("text", ["ae\u0301e\u0301e\u0301b", "👩\u200d👩❤️👩\u200d👩", "e\u0301" * 9])
def test_a_character_is_not_split_while_others_can_be(text: str) -> None:
    found = fitting_spans(text, [(0, len(text))], (), len(text) - 1, lambda parts: [*map(len, parts)])
    (_, place), _ = found
    assert "\u200d" not in text[place - 1 : place + 1]
    assert text[place] not in "\u0301\ufe0f"
    assert place >= len(text) // 2
