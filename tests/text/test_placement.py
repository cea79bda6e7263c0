"""Tags go where their words go, whatever the order of these is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.text.attended import ReversingTranslator, UnfaithfulTranslator, attended

ELEMENTS = ("b", "s", "a", "u")
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


@examples(25, 100)
@given(NODES)
def test_elements_are_around_the_same_words(nodes: list[Node]) -> None:
    document = written(nodes, iter(range(99)))
    assert attended(document) == document
    reverse: Any = ReversingTranslator()
    texts = TextTranslator(reverse, TextOptions(match_surface=False, max_repeats=0))
    assert texts.translate([document], format="html")[0].text == reversed_document(document)


@pytest.mark.parametrize(
    ("document", "order", "expected"),
    [
        ("<b>the old dog {x}</b> runs now", [0, 1, 2, 6, 7, 3, 4, 5], "<b>the old dog {x}</b> runs now"),
        ("now runs <b>the old dog {x}</b>", [5, 6, 7, 0, 1, 2, 3, 4], "now runs <b>{x} the old dog</b>"),
        ("<b>{x} the old dog</b> runs now", [3, 4, 5, 6, 0, 1, 2, 7], "<b>the old dog {x}</b> runs now"),
    ],
)
def test_a_placeholder_moves_to_the_nearer_end_of_its_element(document: str, order: list[int], expected: str) -> None:
    translator: Any = ReversingTranslator()
    translator.order = lambda words: order
    texts = TextTranslator(translator, TextOptions(match_surface=False))
    assert texts.translate([document], format="html")[0].text == expected


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


PIECES = (
    *(" the dog ", " ", ", ", ". ", "{x}", "https://a.b/z", "l'", " 7 ", " the <img> dog ", "<code>x</code>"),
    *("dog<sup>[7]</sup>", " H<sub>2</sub>O ", "\n", " a ", "<br>"),
)
CONTENT: st.SearchStrategy[list[Node]] = st.recursive(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    lambda inner: st.lists(
        st.sampled_from(PIECES) | st.tuples(st.sampled_from((*ELEMENTS, "p")), inner), min_size=1, max_size=4
    ),
    max_leaves=12,
)


def numbered(nodes: list[Node], numbers: Iterator[int], *, in_block: bool = False) -> str:
    """A document whose elements and placeholders have numbers; paragraphs are outside other elements."""
    written = ""
    for node in nodes:
        number = next(numbers)
        if isinstance(node, str):
            node = re.sub("<(code|su[bp])", rf"<\1 n={number}", node)
            written += node.replace("x", f"x{number}").replace("/z", f"/z{number}")
        elif node[0] == "p" and in_block:
            written += numbered(node[1], numbers, in_block=True)
        else:
            written += f"<{node[0]} n={number}>{numbered(node[1], numbers, in_block=True)}</{node[0]}>"
    return written


def elements_around(document: str) -> dict[str, list[str]]:
    """The elements around each placeholder, and around each element that has text, whose tags must balance."""
    around: dict[str, list[str]] = {}
    opened: list[tuple[str, int]] = []
    texts: list[str] = []
    for part in re.findall(r"<[^<>]*>|\{x\d+\}|https://a\.b/z\d+|[^<>{}]", document):
        if part.startswith("</"):
            start, length = opened.pop()
            assert start.split(" ")[0][1:] == part[2:-1]
            if "".join(texts[length:]).strip():
                around[start] = [name for name, _ in opened]
        elif part.startswith(("<img", "<br")):
            continue
        elif part.startswith("<"):
            opened.append((part, len(texts)))
        else:
            texts.append(part)
            if len(part) > 1:
                around[part] = [name for name, _ in opened]
    assert not opened
    return around


def borders(document: str) -> list[tuple[str, str]]:
    """White space at the beginning and end of each block."""
    blocks = [re.sub("</?[^<>i]*>", "", block) for block in re.split("</?p[^<>]*>|<br>", document)]
    return [(block[: len(block) - len(block.lstrip())], block[len(block.rstrip()) :]) for block in blocks]


@examples(25, 100)
@example([("b", [("b", [", "]), ("b", [("b", ["dog<sup>[7]</sup>"])])]), ("b", ["l'"])], 7)
@example([("b", [("b", [" the dog ", " the dog ", "https://a.b/z"])]), ("b", ["l'"])], 19)
@given(CONTENT, st.integers(0, 10**6))
def test_whatever_the_model_writes_elements_keep_text_and_placeholders(nodes: list[Node], seed: int) -> None:
    document = numbered(nodes, iter(range(10**6)))
    translator: Any = UnfaithfulTranslator(seed)
    translator.session.max_source_length = 10**6
    translated = TextTranslator(translator).translate([document], format="html")[0].text
    tags = re.compile(r"<[^<>]*>")
    assert sorted(tags.findall(translated)) == sorted(tags.findall(document)), (document, translated)
    found, wanted = elements_around(translated), elements_around(document)
    if not re.search(r"<br>|\. ", document):  # no element has more than one sentence
        assert {name: around for name, around in wanted.items() if found.get(name) != around} == {}, (
            document,
            translated,
        )
    assert borders(translated) == borders(document), (document, translated)
