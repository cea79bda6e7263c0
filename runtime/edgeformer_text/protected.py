"""What is not translated: URLs, addresses, mentions, hashtags, placeholders, emoji, and text without words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from edgeformer_text.block import Block, Item, overlapping, without_items
from edgeformer_text.lexicon import LEXICON

_EMOJI = LEXICON["protected"]["emoji"]
FORMULA: str = LEXICON["protected"]["patterns"][0]["pattern"]
"""``$x^2$`` and ``$$…$$``, but no prices: what is between the signs is a letter, or has a sign of mathematics."""
_BALANCED = r"[^{}]{0,1000}+"
for _ in range(8):  # braces inside braces
    _BALANCED = rf"(?:[^{{}}]{{1,1000}}+|\{{{_BALANCED}\}}){{0,100}}+"
_PATTERNS = [
    # ICU's choices, `{n, plural, one {…} other {…}}`, go on to the brace that closes them.
    rf"{each['pattern']}{_BALANCED}\}}" if each["example"].startswith("{n, plural") else each["pattern"]
    for each in LEXICON["protected"]["patterns"]
]
_PATTERNS.append(f"[{_EMOJI}][{_EMOJI}{LEXICON['protected']['emoji_parts']}]*")
_MAX_SIGNS = 3
"""Most signs between items that belong together."""
_PASSED = rf"\s{{1,64}}|(?<=\w)[^\Wfhw{_EMOJI}]{{1,64}}"
"""Where no pattern can match: white space, and the middle of a word that does not become a URL there."""
# A search in vain would hold up all other threads until the end of the text. So something matches everywhere.
_PROTECTED = re.compile(rf"{_PASSED}|(?P<kept>{'|'.join(_PATTERNS)})|(?s:.)")
_SENTENCE_END = LEXICON["protected"]["sentence_end"]


def protected_items(block: Block) -> list[Item]:
    """Find what is not translated inside the sentences of a block, outside the items that it has already. It is neither
    begun in one element nor ended in another."""
    edges = {tag.offset for tag in block.tags if tag.partner is not None}
    edges.update(edge for item in block.items for edge in (item.start, item.end))
    return [
        block.item(start, end)
        for first, last in pairwise(sorted({0, len(block.text), *edges}))
        if not overlapping(block.items, first, last)
        for start, end in protected_spans(block.text, first, last)
    ]


def joined_items(block: Block, items: Sequence[Item]) -> list[Item]:
    """Ordered items, those with nothing but signs between them as one, such as ``{a}/{b}`` and ``<kbd>Ctrl</kbd>+<kbd>C
    </kbd>``."""
    groups: list[list[Item]] = []
    offsets = [tag.offset for tag in block.tags]
    for item in items:
        if groups and _is_joined(block.text, offsets, groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [block.item(group[0].start, group[-1].end) if len(group) > 1 else group[0] for group in groups]


def _is_joined(text: str, tags: Sequence[int], one: Item, other: Item) -> bool:
    is_plain = not any(item.is_term or item.attributes for item in (one, other))
    between = text[one.end : other.start]
    has_tags = bisect_left(tags, one.end) < bisect_right(tags, other.start)
    return is_plain and len(between) <= _MAX_SIGNS and not has_tags and not re.search(r"[\w\s]", between)


def protected_spans(text: str, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Find what is not translated in a text, or in some of its characters: begin and end of each part."""
    for match in _PROTECTED.finditer(text, first, len(text) if last is None else last):
        if not match["kept"]:
            continue
        start, end = match.span()
        if "://" in match[0] or match[0].startswith("www."):
            end -= _unlinked(match[0])
        yield start, end


def _unlinked(url: str) -> int:
    """The number of punctuation marks after a URL; a parenthesis or the like that closes one of the URL belongs to
    it."""
    kept, surplus = len(url), {close: url.count(close) - url.count(begin) for begin, close in ("()", "[]", "{}")}
    while kept > 1 and (last := url[kept - 1]) in _SENTENCE_END and surplus.get(last, 1) > 0:
        if last in surplus:
            surplus[last] -= 1
        kept -= 1
    return len(url) - kept


def has_words(text: str, start: int, end: int, items: Sequence[Item]) -> bool:
    """Return whether part of a text has a letter outside protected items."""
    kept_as_is = [item for item in overlapping(items, start, end) if not item.is_term]
    return any(map(str.isalpha, without_items(text, (start, end), kept_as_is)))
