"""Tags go where their words go, whatever the order of these is."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.text.block import Block, Tag
from edgeformer_runtime.text.markup import html_parts
from edgeformer_runtime.text.options import TextOptions
from edgeformer_runtime.text.placement import inner_tags
from edgeformer_runtime.text.text_translator import TextTranslator
from tests.runtime.text.attended import ReversingTranslator, attended

ELEMENTS = ("b", "i", "a", "u")
Node = str | tuple[str, list[Any]]
NODES: st.SearchStrategy[list[Node]] = st.recursive(
    st.lists(st.just("w"), min_size=1, max_size=3),
    lambda inner: st.lists(st.just("w") | st.tuples(st.sampled_from(ELEMENTS), inner), min_size=1, max_size=4),
    max_leaves=10,
)


def written(nodes: list[Node], numbers: Any) -> str:
    """A document of elements and numbered words, with spaces outside the elements."""
    parts = [
        f"w{next(numbers)}x" if isinstance(node, str) else f"<{node[0]}>{written(node[1], numbers)}</{node[0]}>"
        for node in nodes
    ]
    return " ".join(parts)


def reversed_document(document: str) -> str:
    """The document with its words, and the elements around them, in reverse order."""
    parts = re.findall(r"</?\w>|\w+| ", document)[::-1]
    return "".join(part if part[0] != "<" else f"<{part[2]}>" if part[1] == "/" else f"</{part[1]}>" for part in parts)


@given(NODES)
def test_elements_are_around_the_same_words(nodes: list[Node]) -> None:
    document = written(nodes, iter(range(99)))
    assert attended(document) == document
    reverse: Any = ReversingTranslator()
    texts = TextTranslator(reverse, TextOptions(match_surface=False, max_repeats=0))
    assert texts.translate([document], format="html")[0].text == reversed_document(document)


@given(NODES, st.integers(0, 60), st.integers(0, 60))
def test_tags_of_a_sentence_are_those_inside_it(nodes: list[Node], one: int, two: int) -> None:
    """All tags between its words, the tags of elements that it has but is not, and all within those."""
    (block,) = (part for part in html_parts(f"{written(nodes, iter(range(99)))}<img> x") if isinstance(part, Block))
    start, end = (min(place, len(block.text)) for place in sorted((one, two)))

    def is_inner(tag: Tag) -> bool:
        partner = tag if tag.partner is None else block.tags[tag.partner]
        first, last = sorted((tag.place, partner.place))
        is_part = start <= first < last <= end and (first, last) != (start, end)
        parent = None if tag.parent is None else block.tags[tag.parent]
        within = parent is not None and start <= tag.place <= end and is_inner(parent)
        return is_part or start < tag.place < end or within

    assert inner_tags(block, start, end) == {number for number, tag in enumerate(block.tags) if is_inner(tag)}


def test_elements_in_more_others_than_are_followed_are_kept() -> None:
    document = "<b>" * 150 + "w1" + "</b>" * 150 + " w2 <i>w3</i>"
    found = attended(document)
    assert sorted(re.findall(r"</?\w>|\w+", found)) == sorted(re.findall(r"</?\w>|\w+", document))
    assert re.findall(r"w\d", found) == ["w1", "w2", "w3"]
    assert found.endswith("<i>w3</i>")
    depth = 0
    for tag in re.findall(r"<(/?)b>", found):
        depth += -1 if tag else 1
        assert depth >= 0
