"""A block: a paragraph, line or cell of a document, whose sentences are translated one by one."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from edgeformer_text.lexicon import LEXICON
from edgeformer_text.surface import UNSPACED, lowered

Span = tuple[int, int]
"""First character, and the one after the last."""
LETTER = re.compile(rf"(?![{UNSPACED}])\w")
"""A letter or digit of a script whose words have spaces between them."""
ACCENTS = "".join(chr(code) for code in range(0x300, 0x3100) if unicodedata.category(chr(code))[0] == "M")
"""Accents, vowel signs and the like, which continue the word before."""
UNREAD = re.compile(LEXICON["scripts"]["unread"])
"""What models are not given, since they would read letters into it: soft hyphens, word joiners, and marks of direction,
which libraries of messages put around names and numbers."""
_WHITE_SPACE = re.compile(r"\s")
Parts = tuple["str | Block", ...]
"""Text to copy and blocks to translate, in order."""


@dataclass(frozen=True)
class Tag:
    """A tag, comment or the like, which stands before a character of a block."""

    offset: int
    """Offset of that character."""
    raw: str
    """The tag as it is written."""
    partner: int | None = None
    """Position, among the tags of the block, of the other tag of its element; ``None`` if it stands for itself."""
    parent: int | None = None
    """Position of the opening tag of the innermost element around it."""
    attributes: Parts = ()
    """``raw``, divided into text to copy and attributes to translate; empty if it has none."""
    is_alone: bool = False
    """Whether it stands for itself, as that of an image does."""


@dataclass(frozen=True)
class Item:
    """Characters of a block that are not translated, or have a given translation."""

    start: int
    end: int
    text: str
    """What the translation must have."""
    raw: str
    """How that is written."""
    is_term: bool = False
    """Whether it is a term of a glossary, which the model may read."""
    attributes: Parts = field(default=(), compare=False)
    """``raw``, divided into text to copy and attributes to translate; empty if it has none."""


@dataclass(frozen=True)
class Block:
    """A paragraph, line or cell.

    Every character has the text that it is written as, such as ``&amp;``, so that what is not translated stays as it
    is.
    """

    text: str
    raw: str | Sequence[str]
    """How each character is written; empty for those after the first of an item, and for a space that the document
    does not have, between words that an element without text separates."""
    origins: Sequence[int] = ()
    """Place of each character in the document, and that of the end; if empty, they are those in the block."""
    tags: tuple[Tag, ...] = ()
    items: tuple[Item, ...] = ()
    is_markup: bool = False
    """Whether white space only separates words."""
    escapes: Mapping[int, str] = field(default_factory=dict)
    """How characters of a translation are written that are not written as themselves, as :meth:`str.translate` wants
    it."""

    def escape(self, text: str) -> str:
        """Write text."""
        return text.translate(self.escapes)

    def item(self, start: int, end: int) -> Item:
        """Characters as an item."""
        return Item(start, end, self.text[start:end], "".join(self.raw[start:end]))

    def origin(self, offset: int) -> int:
        """Where a character is in the document."""
        return self.origins[offset] if self.origins else offset

    @property
    def attributes(self) -> dict[str, Parts]:
        """The parts of tags and items that have attributes to translate, by how they are written."""
        written: list[Tag | Item] = [*self.tags, *self.items]
        return {part.raw: part.attributes for part in written if part.attributes}

    @property
    def texts(self) -> list[str]:
        """The texts to translate: that of the block, and those of attributes."""
        inner = (part for parts in self.attributes.values() for part in parts if isinstance(part, Block))
        return [self.text, *(text for block in inner for text in block.texts)]

    @classmethod
    def plain(cls, text: str) -> Block:
        """A block of plain text."""
        return cls(text, text)


def word_limits(joint: str = "") -> tuple[str, str]:
    """Patterns of the beginning and the end of whole words, which signs of ``joint`` may join; in scripts without
    spaces, they may be anywhere."""
    joined = rf"(?:{LETTER.pattern}|[\u200c\u200d{ACCENTS}{joint}])"
    return rf"(?:(?<!{joined})|(?=[{UNSPACED}]))", rf"(?:(?!{joined})|(?<=[{UNSPACED}])(?![{ACCENTS}]))"


_BEGIN, _END = map(re.compile, word_limits())
"""Compiled once, since their many characters take long."""


def is_whole(text: str, start: int, end: int) -> bool:
    """Whether a span of a text is a whole word or words."""
    return _BEGIN.match(text, start) is not None and _END.match(text, end) is not None


def overlapping(items: Sequence[Item], start: int, end: int) -> Sequence[Item]:
    """Return those of ordered, disjoint items that have characters of a span."""
    first = bisect_right(items, start, key=lambda item: item.end)
    return items[first : bisect_left(items, end, first, key=lambda item: item.start)]


def inside(offset: int, items: Sequence[Item]) -> Item | None:
    """Return the item that an offset is inside of."""
    return next(iter(overlapping(items, offset, offset)), None)


def spliced(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """A text with other characters in place of those of some spans, in order."""
    parts, offset = list[str](), 0
    for start, end, new in changes:
        parts += [text[offset:start], new]
        offset = end
    return "".join([*parts, text[offset:]])


@dataclass(frozen=True)
class Reading:
    """What the model reads of a sentence."""

    text: str
    offsets: Sequence[int]
    """Place of each of its characters in the block, and that of its end."""
    is_upper: bool = False
    """Whether it is in lowercase in place of capitals."""
    without: frozenset[Item] = frozenset()
    """Items that were left out."""
    added_period: str = ""
    """The period that was added."""


def without_items(text: str, span: Span, items: Sequence[Item]) -> str:
    """A sentence with spaces in place of items."""
    start, end = span
    if not (found := overlapping(items, start, end)):
        return text[start:end]
    inner = [(max(item.start, start) - start, min(item.end, end) - start) for item in found]
    return spliced(text[start:end], [(first, last, " " * (last - first)) for first, last in inner])


def read(
    block: Block,
    span: Span,
    items: Sequence[Item],
    *,
    is_upper: bool = False,
    without: Sequence[Item] = (),
    added_period: str = "",
) -> Reading:
    """Make what the model reads of a sentence.

    Args:
        block: the block.
        span: characters of the sentence in it.
        items: its placeholders and terms.
        is_upper: write it in lowercase.
        without: parts of it to leave out.
        added_period: a period that the sentence does not have.
    """
    start, end = span
    text = block.text[start:end]
    if is_upper:
        lower = lowered(without_items(block.text, span, [item for item in items if not item.is_term]))
        text = "".join(old if new.isspace() else new for old, new in zip(text, lower, strict=True))
    kept = list(range(start, end))
    if without or block.is_markup or UNREAD.search(text):
        left_out = {offset for item in without for offset in range(item.start, item.end)}
        left_out |= {start + match.start() for match in UNREAD.finditer(text)}
        kept = _without_double_spaces(block.text, [offset for offset in kept if offset not in left_out])
        text = "".join([text[offset - start] for offset in kept])
        if without:
            text, kept = _with_gaps(text, kept)
    if block.is_markup:
        text = _WHITE_SPACE.sub(" ", text)
    added_period = added_period if text else ""
    offsets = (*kept, *[end] * len(added_period), end)
    return Reading(text + added_period, offsets, is_upper, frozenset(without), added_period)


def read_without(block: Block, span: Span, items: Sequence[Item], old: Reading, left_out: Sequence[Item]) -> Reading:
    """What the model reads of a sentence without more of its items."""
    without = sorted([*old.without, *left_out], key=lambda item: item.start)
    return read(block, span, items, is_upper=old.is_upper, without=without, added_period=old.added_period)


def _with_gaps(text: str, offsets: Sequence[int]) -> tuple[str, list[int]]:
    """A text with a space wherever something was left out between two words."""
    parts, kept, start = list[str](), list[int](), 0
    for index, (before, after) in enumerate(pairwise(offsets), 1):
        if after > before + 1 and LETTER.match(text, index - 1) and LETTER.match(text, index):
            parts, kept, start = [*parts, text[start:index], " "], [*kept, *offsets[start:index], before + 1], index
    return "".join([*parts, text[start:]]), [*kept, *offsets[start:]]


def _without_double_spaces(text: str, offsets: Sequence[int]) -> list[int]:
    """Characters of a text without white space after white space, at the beginning and at the end."""
    kept: list[int] = []
    for offset in offsets:
        if not text[offset].isspace() or (kept and not text[kept[-1]].isspace()):
            kept.append(offset)
    while kept and text[kept[-1]].isspace():
        kept.pop()
    return kept
