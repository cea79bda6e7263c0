"""Puts the tags of a sentence into its translation: elements around the words that were translated from theirs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeformer_runtime.text.block import Block, Span
from edgeformer_runtime.text.items import best_gap, best_run
from edgeformer_runtime.text.words import AlignedSentence, Word


@dataclass
class _Node:
    """An element, or a tag that stands for itself."""

    order: int
    start: int
    end: int
    opening: str = ""
    closing: str = ""
    after_space: bool = True
    """Whether white space at its place comes before it."""
    children: list[_Node] = field(default_factory=list)
    first: int = 0
    """Its first word in the translation."""
    last: int = 0
    """The word after its last."""


def inner_tags(block: Block, start: int, end: int) -> set[int]:
    """Choose the tags that go with the words of a sentence. Others stay before or after it.

    These are the tags of elements that begin and end in the sentence but do not contain all of it, tags inside such
    elements, and single tags between its words.

    Args:
        block: the block.
        start: first character of the sentence.
        end: the one after its last.
    """
    chosen: set[int] = set()
    places = [tag.place for tag in block.tags]
    for index in range(bisect_left(places, start), bisect_right(places, end)):
        tag = block.tags[index]
        first, last = tag.place, tag.place
        if tag.partner is not None:
            other = block.tags[tag.partner].place
            first, last = min(first, other), max(last, other)
        within = start <= first < last <= end and (first, last) != (start, end)
        if within or start < tag.place < end or tag.parent in chosen:
            chosen.add(index)
    return chosen


def with_tags(
    sentence: AlignedSentence, block: Block, chosen: Iterable[int], span: tuple[int, int]
) -> tuple[str, list[Span]]:
    """Write a translation with tags.

    Args:
        sentence: the translation.
        block: the block, which says how text is written.
        chosen: its tags that belong to the sentence.
        span: characters of the sentence in the block.

    Returns:
        What is written, and the characters of each word in it.
    """
    root = _tree(block, sorted(chosen), *span)
    root.last = len(sentence.words)
    _place(sentence, block.text, root)
    written, length, spans = [], 0, []
    for part in _written(sentence, root):
        text = part if isinstance(part, str) else block.escape(part.text) if part.raw is None else part.raw
        if isinstance(part, Word):
            spans.append((length, length + len(text)))
        written.append(text)
        length += len(text)
    return "".join(written) + sentence.end, spans


def _tree(block: Block, chosen: Sequence[int], start: int, end: int) -> _Node:
    root = _Node(-1, start, end)
    nodes: dict[int, _Node] = {}
    members = frozenset(chosen)
    for index in chosen:
        tag = block.tags[index]
        if tag.partner in nodes:
            nodes[tag.partner].closing = tag.raw
            continue
        node = nodes[index] = _Node(index, tag.place, tag.place, tag.raw)
        if tag.partner is not None and tag.partner > index and tag.partner in members:
            node.end = block.tags[tag.partner].place
        else:
            node.after_space = block.text[tag.place - 1 : tag.place].isspace() or not tag.place
        parent = nodes.get(tag.parent) if tag.parent is not None else None
        (parent or root).children.append(node)
    return root


def _place(sentence: AlignedSentence, source: str, parent: _Node) -> None:
    """Give the children of a node their words, all among those of the node, no two the same."""
    taken = np.zeros(len(sentence.words) + 1, dtype=bool)
    waiting = sorted(parent.children, key=lambda child: (child.start - child.end, child.order))
    # Where no word has most of its attention in an element, those that attend to one of its words most.
    for measured in (_gain, _preference):
        for child in [child for child in waiting if child.start < child.end]:
            words = sentence.words[parent.first : parent.last]
            gains = np.array([measured(sentence, word, source, child) for word in words])
            run = best_run(np.where(taken[parent.first : parent.last], -np.inf, gains))
            if run is not None:
                child.first, child.last = parent.first + run[0], parent.first + run[1]
                taken[child.first : child.last] = True
                waiting.remove(child)
    gaps = [
        gap
        for gap in range(parent.first, parent.last + 1)
        if not any(child.first < gap < child.last for child in parent.children)
    ]
    previous = parent.first
    for child in sorted(waiting, key=lambda child: child.order):
        previous = best_gap(sentence, child.start, [gap for gap in gaps if gap >= previous])
        child.first = child.last = previous
    for child in parent.children:
        _place(sentence, source, child)


def _preference(sentence: AlignedSentence, word: Word, source: str, node: _Node) -> float:
    """How much a word attends to an element; negative if the source word that it attends to most is elsewhere."""
    span = sentence.source(word)
    is_inner = span is not None and word.text[:1].isalnum() and node.start <= span[0] and span[1] <= node.end
    return sentence.share(word, node.start, node.end) if is_inner else -1.0


def _gain(sentence: AlignedSentence, word: Word, source: str, node: _Node) -> float:
    """How much a word belongs to an element: positive if most of it was translated from the element's text."""
    gain = sentence.share(word, node.start, node.end) - 0.5
    if not word.text[:1].isalnum() and word.text not in source[node.start : node.end]:
        return min(gain, -0.01)  # punctuation that the element does not have may be between its words only
    return gain


def _written(sentence: AlignedSentence, node: _Node) -> Iterable[str | Word]:
    """What is between the tags of a node, words in their order. White space before its first word is left to what is
    around it."""
    place = node.first
    spaced = node.order >= 0
    for child in sorted(node.children, key=lambda child: (child.first, child.last, child.order)):
        for word in sentence.words[place : child.first]:
            yield "" if spaced else word.space
            yield word
            spaced = False
        place = child.first
        if place < node.last and not spaced and (child.first < child.last or child.after_space):
            yield sentence.words[place].space
            spaced = True
        yield child.opening
        yield from _written(sentence, child)
        yield child.closing
        if child.first < child.last:
            place, spaced = child.last, False
    for word in sentence.words[place : node.last]:
        yield "" if spaced else word.space
        yield word
        spaced = False
