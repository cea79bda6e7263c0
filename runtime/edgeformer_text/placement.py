"""Puts the tags of a sentence into its translation: elements around the words that were translated from theirs.

Whatever the model writes, every tag is there once, elements are nested as before, an element that had text
has text, and a placeholder stays in its elements:

1. The tags become a tree, whose nodes are spans of the source.
2. From the outermost node to the innermost, those inside another one divide its words among themselves. Each gets the
   placeholders that it has in the source, then the run of words with most of their attention in it, or those that
   attend to one of its words most, or else, if its words were lost, a word next to where they would be. A placeholder
   that the model put elsewhere moves to the words of its element.
3. A node without text goes between words.
4. Where there are fewer words than elements, those that got none keep the text of the source, unless it is a part of a
   word: it is put into the translation as placeholders are, and all is placed again.
5. The words and tags are written in order. White space goes outside elements; a single tag has it on the sides on which
   it has it in the source.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from edgeformer_text.alignment import AlignedSentence, Shares, Word, best_gap, best_run, restored, spaced
from edgeformer_text.block import LETTER, Block, Item, Span, Tag

_FREE, _FIXED = -1, -2
"""Owners of words that no node has, and of placeholders between the nodes."""


_NO_TAG = Tag(0, "")


@dataclass
class _TagNode:
    """An element, or a tag that stands for itself."""

    order: int
    """Position of its tag in the block."""
    start: int
    end: int
    opening: Tag = _NO_TAG
    closing: Tag | None = None
    has_text: bool = False
    is_begun: bool = False
    """Whether it begins an element that ends in another sentence."""
    is_ended: bool = False
    """Whether it ends an element that begins in another sentence."""
    after_space: bool = False
    """Whether it has no text, and white space comes before it."""
    before_space: bool = False
    """Whether it has no text, and white space follows it."""
    children: list[_TagNode] = field(default_factory=list)
    first: int = 0
    """Its first word in the translation."""
    last: int = 0
    """The word after its last."""


_Part = str | Word | tuple[_TagNode, bool]
"""What is written: white space, a word, or the beginning or end of a node."""


def inner_tags(block: Block, start: int, end: int) -> set[int]:
    """Choose the tags that go with the words of a sentence. Others stay before or after it.

    These are the tags of elements that begin and end in the sentence but do not contain all of it, tags inside such
    elements, and single tags between its words. White space around the sentence does not count as other text.
    """
    before, after = start, end
    while before and block.text[before - 1].isspace():
        before -= 1
    while block.text[after : after + 1].isspace():
        after += 1
    chosen, whole = set[int](), set[int]()
    first_tag = bisect_left(block.tags, before, key=attrgetter("offset"))
    for index in range(first_tag, bisect_right(block.tags, after, key=attrgetter("offset"))):
        tag = block.tags[index]
        first, last = tag.offset, tag.offset
        if tag.partner is not None:
            other = block.tags[tag.partner].offset
            first, last = min(first, other), max(last, other)
        inner = max(first, start), min(last, end)
        is_part = before <= first and last <= after and inner[0] < inner[1] and inner != (start, end)
        if is_part or tag.parent in whole:
            whole.add(index)
        elif start < tag.offset < end:
            chosen.add(index)
    return chosen | whole


def with_tags(
    sentence: AlignedSentence, block: Block, chosen: Iterable[int], span: Span, language: str = ""
) -> tuple[str, AlignedSentence, list[Span]]:
    """Write a translation with tags.

    Args:
        sentence: the translation.
        block: the block, which says how text is written.
        chosen: its tags that belong to the sentence.
        span: characters of the sentence in the block.
        language: language code of the translation.

    Returns:
        What is written, the translation with its words in that order, and the characters of each word.
    """
    tags = sorted(chosen)
    while True:  # each round has fewer tags than the one before
        root = _tree(block, tags, *span)
        root.last = len(sentence.words)
        sentence, wordless = _place(sentence, block.text, root)
        if not wordless:
            break
        # Elements without words keep the text of the source, with the tags in it, as placeholders do.
        kept = [_source(block, node, *span) for node in wordless]
        sentence = restored(sentence, kept, block.text, span[0], without=kept)
        inner = {tag for node in wordless for tag in range(node.order + 1, block.tags[node.order].partner or 0)}
        tags = [tag for tag in tags if tag not in inner]
    sentence = spaced(sentence, block.text, span, language)
    parts = _written(sentence.words, root)
    texts = [_text(part, block) for part in parts]
    ends = [0, *accumulate(map(len, texts))]
    spans = [span for span, part in zip(pairwise(ends), parts, strict=True) if isinstance(part, Word)]
    return "".join(texts) + sentence.end, sentence, spans


def _text(part: _Part, block: Block) -> str:
    if isinstance(part, Word):
        return block.escape(part.text) if part.raw is None else part.raw
    if isinstance(part, str):
        return part
    tag = part[0].closing if part[1] else part[0].opening
    return "" if tag is None else tag.raw


def _source(block: Block, node: _TagNode, start: int, end: int) -> Item:
    """The text that an element has in a sentence of the source, with the tags in it."""
    parts, offset = list[str](), max(start, node.start)  # text, a tag, text, and so on
    for tag in block.tags[node.order + 1 : block.tags[node.order].partner]:
        parts += ["".join(block.raw[offset : min(tag.offset, end)]), tag.raw]
        offset = max(offset, tag.offset)
    parts.append("".join(block.raw[offset : min(node.end, end)]))
    filled = [index for index in range(0, len(parts), 2) if parts[index].strip()]
    for index in range(0, len(parts), 2):  # without white space at the edges, inside other elements either
        text = parts[index] if index > filled[0] else parts[index].lstrip()
        parts[index] = text if index < filled[-1] else text.rstrip()
    return Item(node.start, node.end, block.text[node.start : node.end].strip(), "".join(parts))


def _tree(block: Block, chosen: Sequence[int], start: int, end: int) -> _TagNode:
    """Make the tree of the chosen tags of a sentence; its root stands for the sentence itself."""
    root = _TagNode(-1, start, end)
    nodes: dict[int, _TagNode] = {}
    members = frozenset(chosen)
    for index in chosen:
        tag = block.tags[index]
        if tag.partner is not None and tag.partner in nodes:  # the end of an element that began before
            nodes[tag.partner].closing = tag
            continue
        node = nodes[index] = _TagNode(index, tag.offset, tag.offset, tag)
        if tag.partner in members:
            node.end = block.tags[tag.partner].offset
        node.has_text = bool(block.text[node.start : node.end].strip())
        close = index if tag.partner is None or tag.partner not in members else tag.partner
        if close == index and not tag.is_alone:  # the other tag of its element is in another sentence, or missing
            node.is_ended = tag.raw.startswith("</") if tag.partner is None else tag.partner < index
            node.is_begun = not node.is_ended
        elif not node.has_text:
            # White space before the first word of the sentence or after its last is written around it.
            is_first = node.start <= end and (not index or block.tags[index - 1].offset < node.start)
            is_last = node.end >= start and (close + 1 == len(block.tags) or block.tags[close + 1].offset > node.end)
            node.after_space = is_first and (not node.start or block.text[node.start - 1].isspace())
            node.before_space = is_last and block.text[node.end : node.end + 1].isspace()
        # An element of which only one tag is chosen is a tag between words, and so not the parent of what is inside.
        parent = nodes.get(tag.parent) if tag.parent is not None else None
        (root if parent is None or block.tags[parent.order].partner not in members else parent).children.append(node)
    return root


def _place(sentence: AlignedSentence, source: str, root: _TagNode) -> tuple[AlignedSentence, list[_TagNode]]:
    """Give the nodes inside another one their words, all among those of the node around, no two of which are the same
    for nodes side by side.

    Returns:
        The translation, perhaps with placeholders elsewhere, and the nodes that have text but no words.
    """
    parents, wordless = [root], list[_TagNode]()
    while parents:
        parent = parents.pop()
        sentence, found = _place_children(sentence, source, parent)
        wordless += found
        parents += (child for child in parent.children if child.first < child.last or not child.has_text)
    return sentence, wordless


def _place_children(sentence: AlignedSentence, source: str, parent: _TagNode) -> tuple[AlignedSentence, list[_TagNode]]:
    # Placeholders belong to the child that they are in in the source, wherever the model put them.
    first, last = parent.first, parent.last
    children = [child for child in parent.children if child.has_text]
    owners, starts = np.full(last - first, _FREE), [child.start for child in children]  # of each word, the child
    for index in sentence.placeholders[slice(*np.searchsorted(sentence.placeholders, (first, last)))]:
        start, end = sentence.origins[index]
        child = bisect_right(starts, start) - 1
        owners[index - first] = child if child >= 0 and end <= children[child].end else _FIXED
    is_stray = np.zeros(last - first, dtype=bool)  # placeholders that are not among the words of their child
    # Children take words in two rounds, the longest first: the run of words with the largest sum of gains, which may go
    # through words without an owner and placeholders of its own, but not through words of others; then, for those that
    # got none, words that attend to one of theirs most.
    waiting = sorted(range(len(children)), key=lambda child: children[child].start - children[child].end)
    for measured in (_gains, _preferences):
        left = []
        for child in waiting:
            gains = measured(sentence, source, children[child])[first:last]
            is_own = owners == child
            run = best_run(np.where(is_own, 0.5, np.where(owners == _FREE, gains, -np.inf)))
            if run is None:
                left.append(child)
                continue
            owners[slice(*run)] = child
            is_stray |= is_own
            is_stray[slice(*run)] = False
        waiting = left
    # The model may have left the words of a child out. It gets the word nearest to the gap where they would be.
    wordless = []
    for child in sorted(waiting):
        word = None
        if any(map(str.isalpha, source[children[child].start : children[child].end])):
            gap = best_gap(sentence, children[child].start, np.arange(first, last + 1)) - first
            word = _nearest(gap, sentence.is_word[first:last], owners)
        if word is not None:
            owners[word] = child
        elif _divides_word(sentence, source, children[child]):
            children[child].has_text = False  # the word that it is part of is in the translation
        else:
            wordless.append(children[child])
    for elided in np.flatnonzero(sentence.is_elided[first:last][1:] & (owners[1:] == _FREE)):
        owners[elided + 1] = owners[elided]  # an article that has lost its vowel goes with its word
    # Placeholders that the model put elsewhere move to the words of their child, which then has a single run.
    if is_stray.any():
        sentence, owners = _gathered(sentence, first, owners, is_stray)
    is_gap = np.ones(last - first + 1, dtype=bool)
    for child, node in enumerate(children):
        own = np.flatnonzero(owners == child)
        if len(own):
            node.first, node.last = first + int(own[0]), first + int(own[-1]) + 1
            is_gap[own[1:]] = False
    # Children without text go into the gaps that are left, neither inside the run of another nor behind `l'`.
    is_gap[1:-1] &= ~sentence.is_elided[first:last][1:]
    gaps = first + np.flatnonzero(is_gap)
    own_items = sentence.placeholders[slice(*np.searchsorted(sentence.placeholders, (first, last)))].tolist()
    placed = [(sentence.origins[index], index, index + 1) for index in own_items]
    placed += [((node.start, node.end), node.first, node.last) for node in children if node.first < node.last]
    _place_between(sentence, parent, gaps, placed)
    return sentence, wordless


def _place_between(
    sentence: AlignedSentence, parent: _TagNode, gaps: NDArray[np.intp], placed: Sequence[tuple[Span, int, int]]
) -> None:
    """Give the nodes without text inside another one their gaps, in order.

    Args:
        sentence: the translation.
        parent: the node around them.
        gaps: gaps between its children and words, in order.
        placed: characters in the source, and words, of the placeholders and nodes with text inside it.
    """
    first, last = parent.first, parent.last
    sources = np.array([source for source, _, _ in placed]).reshape(-1, 2)
    lefts, rights = (np.array([part[side] for part in placed]) for side in (1, 2))
    words = np.flatnonzero(sentence.is_word[first:last]) + first
    for node in (child for child in parent.children if not child.has_text):
        free = gaps
        if node.is_begun:  # its element has the words, elements and placeholders that follow
            behind = lefts[sources[:, 0] >= node.start]
            free = gaps[gaps <= min(behind.min(initial=last), words.max(initial=first))]
        elif node.is_ended:
            ahead = rights[sources[:, 1] <= node.start]
            free = gaps[gaps >= max(ahead.max(initial=first), words.min(initial=last - 1) + 1)]
        free = free if len(free) else gaps[:1]
        node.first = node.last = best_gap(sentence, node.start, free)
        gaps = gaps[np.searchsorted(gaps, node.first) :]


def _divides_word(sentence: AlignedSentence, source: str, node: _TagNode) -> bool:
    """Whether an element begins or ends inside a word; a placeholder beside it does not belong to one."""
    edges = {node.start, node.end} - sentence.apart
    return any(source[edge - 1 : edge].isalnum() and source[edge : edge + 1].isalnum() for edge in edges)


def _nearest(gap: int, is_word: NDArray[np.bool_], owners: NDArray[np.intp]) -> int | None:
    """The word nearest to a gap that no child has, or else the first or last of several of a child; ``None`` if there
    is none."""
    candidates = is_word & (owners == _FREE)
    if not candidates.any():
        is_owned = is_word & (owners >= 0)
        counts = np.bincount(owners[is_owned], minlength=1)
        is_edge = np.diff(owners, prepend=_FIXED - 1, append=_FIXED - 1) != 0
        candidates = is_owned & (is_edge[:-1] | is_edge[1:]) & (counts[owners * is_owned] > 1)
    (indices,) = np.nonzero(candidates)
    return int(indices[np.abs(indices + 0.5 - gap).argmin()]) if len(indices) else None


def _gathered(
    sentence: AlignedSentence, first: int, owners: NDArray[np.intp], is_stray: NDArray[np.bool_]
) -> tuple[AlignedSentence, NDArray[np.intp]]:
    """Move placeholders to the nearer end of the other words of their owner."""
    keys = np.arange(len(owners), dtype=np.float64)
    for stray in np.flatnonzero(is_stray):
        own = np.flatnonzero((owners == owners[stray]) & ~is_stray)
        keys[stray] = own[0] - 0.25 if stray < own[0] else own[-1] + 0.25
    order = np.argsort(keys, kind="stable")
    return sentence.reordered(first, order.tolist()), owners[order]


def _preferences(sentence: AlignedSentence, source: str, node: _TagNode) -> Shares:
    """How much each word attends to an element; less than any number if the source word that it attends to most is
    elsewhere."""
    starts, ends = sentence.source_edges
    is_inner = sentence.is_word & (node.start <= starts) & (ends <= node.end)
    return np.where(is_inner, sentence.shares(node.start, node.end), -np.inf)


def _gains(sentence: AlignedSentence, source: str, node: _TagNode) -> Shares:
    """How much each word belongs to an element: positive if most of it was translated from the element's text."""
    gains = sentence.shares(node.start, node.end) - 0.5
    for index in np.flatnonzero(gains > -0.01):
        text = sentence.words[index].text
        if not text[:1].isalnum() and text not in source[node.start : node.end]:
            gains[index] = -0.01  # punctuation that the element does not have may be between its words only
    return gains


def _written(words: Sequence[Word], root: _TagNode) -> list[_Part]:
    """The words and tags in order, and the white space between them."""
    parts = list[_Part]()
    index, is_spaced, is_apart = 0, False, False
    """The next word; whether the white space before it is written; whether there must be some."""

    def space(*, is_wanted: bool = False) -> str:
        if is_spaced:
            return ""
        own = words[index].space if index < len(words) else ""
        is_edge = is_apart if not index else index == len(words) or LETTER.fullmatch(words[index - 1].text[-1:])
        return own or (" " if is_edge and (is_wanted or not index) else "")

    # What is still to be written, the next at the end: a node that begins, the end of one, or a word. This is a stack
    # instead of recursion, as elements may be nested more deeply than Python's calls.
    waiting: list[_TagNode | tuple[_TagNode, bool] | int] = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, int):
            parts += [space(), words[part]]
            index, is_spaced, is_apart = part + 1, False, False
        elif isinstance(part, tuple):
            parts.append(part)
        else:
            # White space goes before what has text, so that it is outside: `a <b>word</b>`.
            if part.has_text or part.is_begun or part.after_space:
                before = space(is_wanted=part.after_space and part.opening.is_alone)
                is_spaced = is_spaced or bool(before)
                parts.append(before)
            parts.append((part, False))
            if part.before_space:  # that of the next word follows the tag: `word<br> next`
                is_spaced, is_apart = False, is_apart or part.opening.is_alone
            # Then follow its children, its own words between them, and its end.
            inner: list[_TagNode | tuple[_TagNode, bool] | int] = []
            after = part.first
            for child in sorted(part.children, key=lambda child: (child.first, child.last, child.order)):
                inner += [*range(after, child.first), child]
                after = child.last
            waiting += reversed([*inner, *range(after, part.last), (part, True)])
    return parts
