"""Puts the tags of a sentence into its translation: elements around the words that were translated from theirs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeformer_runtime.text.block import Block, Span, Tag
from edgeformer_runtime.text.items import best_gap, best_run
from edgeformer_runtime.text.words import AlignedSentence, Shares, Word

_MAX_DEPTH = 100
"""Elements inside each other; deeper ones are put side by side."""


@dataclass
class _Node:
    """An element, or a tag that stands for itself."""

    order: int
    start: int
    end: int
    opening: str = ""
    closing: str = ""
    depth: int = 0
    after_space: bool = True
    """Whether white space at its place comes before it."""
    before_space: bool = False
    """Whether more comes after it."""
    children: list[_Node] = field(default_factory=list)
    first: int = 0
    """Its first word in the translation."""
    last: int = 0
    """The word after its last."""


def _place_of(tag: Tag) -> int:
    return tag.place


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
    first_tag = bisect_left(block.tags, start, key=_place_of)
    for index in range(first_tag, bisect_right(block.tags, end, key=_place_of)):
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
    around: dict[int, _Node] = {}
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
            node.before_space = node.after_space and block.text[tag.place : tag.place + 1].isspace()
        parent = (nodes.get(tag.parent) if tag.parent is not None else None) or root
        if parent.depth == _MAX_DEPTH:
            parent = around[parent.order]
        node.depth, around[index] = parent.depth + 1, parent
        parent.children.append(node)
    return root


def _place(sentence: AlignedSentence, source: str, root: _Node) -> None:
    """Give the nodes inside another one their words, all among those of the node around, no two of which are the same
    for nodes side by side."""
    parents = [root]
    while parents:
        parent = parents.pop()
        _place_children(sentence, source, parent)
        parents += parent.children


def _place_children(sentence: AlignedSentence, source: str, parent: _Node) -> None:
    first, last = parent.first, parent.last
    is_free = np.ones(last - first, dtype=bool)
    waiting = sorted(parent.children, key=lambda child: (child.start - child.end, child.order))
    # Where no word has most of its attention in an element, those that attend to one of its words most.
    for measured in (_gains, _preferences):
        left = []
        for child in waiting:
            run = None
            if child.start < child.end:
                run = best_run(np.where(is_free, measured(sentence, source, child)[first:last], -np.inf))
            if run is None:
                left.append(child)
                continue
            child.first, child.last = first + run[0], first + run[1]
            is_free[run[0] : run[1]] = False
        waiting = left
    is_gap = np.ones(last - first + 1, dtype=bool)
    for child in parent.children:
        if child.first < child.last:
            is_gap[child.first + 1 - first : child.last - first] = False
    gaps = first + np.flatnonzero(is_gap)
    for child in sorted(waiting, key=lambda child: child.order):
        child.first = child.last = best_gap(sentence, child.start, gaps)
        gaps = gaps[np.searchsorted(gaps, child.first) :]


def _preferences(sentence: AlignedSentence, source: str, node: _Node) -> Shares:
    """How much each word attends to an element; negative if the source word that it attends to most is elsewhere."""
    is_inner = [
        span is not None and word.text[:1].isalnum() and node.start <= span[0] and span[1] <= node.end
        for word, span in zip(sentence.words, sentence.sources, strict=True)
    ]
    return np.where(is_inner, sentence.shares(node.start, node.end), -1.0)


def _gains(sentence: AlignedSentence, source: str, node: _Node) -> Shares:
    """How much each word belongs to an element: positive if most of it was translated from the element's text."""
    gains = sentence.shares(node.start, node.end) - 0.5
    for index in np.flatnonzero(gains > -0.01):
        text = sentence.words[index].text
        if not text[:1].isalnum() and text not in source[node.start : node.end]:
            gains[index] = -0.01  # punctuation that the element does not have may be between its words only
    return gains


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
        elif child.before_space:
            spaced = False
    for word in sentence.words[place : node.last]:
        yield "" if spaced else word.space
        yield word
        spaced = False
