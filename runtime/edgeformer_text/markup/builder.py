"""Builds blocks of HTML."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgeformer_text.block import LETTER, Block, Item, Parts, Tag
from edgeformer_text.lexicon import LEXICON, split_names
from edgeformer_text.markup.tokens import MarkupToken

ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
LEGACY_ENTITY = re.compile(ENTITY.pattern.replace(";", ";?"))
"""An entity in text, whose semicolon may be missing; the longest beginning that is one counts."""
ATTRIBUTE_ENTITY = re.compile(ENTITY.pattern.replace("}", "}+").replace(";", "(?:;|(?![=a-zA-Z0-9;]))"))

_IMAGES = split_names(LEXICON["html"]["images"])
"""Elements that are shown between words."""
ESCAPES: Mapping[int, str] = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""How text is written in HTML."""


@dataclass
class BlockBuilder:
    """Collects the text and tags of a block."""

    escapes: Mapping[int, str]
    """How text is written; if there are such, HTML may have entities."""
    is_markup: bool = True
    """Whether white space only separates words."""
    characters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    waiting: Counter[str] = field(default_factory=Counter)
    """Number of opened elements by name."""
    is_apart: bool = False
    """Whether text that follows does not belong to the word before it."""

    def text(self, raw: str, offset: int, entity: re.Pattern[str] = ENTITY) -> None:
        """Add text, in which entities stand for characters; those without a character are kept as comments are."""
        start = 0
        for match in entity.finditer(raw) if self.escapes else ():
            text = html.unescape(match[0])
            rest = text[1:] if match[0].endswith(text[1:]) else ""  # what follows `&not` in `&notit;`
            if text == match[0] or (rest and entity is not LEGACY_ENTITY):
                continue
            end = match.end() - len(rest)
            self.add(raw[start : match.start()], raw[start : match.start()], offset + start)
            text = text.removesuffix(rest)
            if text and "\ufffd" not in text:
                self.add(text, [raw[match.start() : end], *[""] * (len(text) - 1)], offset + match.start())
            else:
                self.tag(MarkupToken(raw[match.start() : end], "!"))
            start = end
        self.add(raw[start:], raw[start:], offset + start)

    def plain(self, text: str) -> None:
        """Add text that is written as it is."""
        self.add(text, text)

    def item(self, text: str, raw: str, offset: int = 0, attributes: Parts = ()) -> None:
        """Add an element that is copied, and whose text the model may read; without text, it separates words as an
        image does."""
        if not text.strip():
            self.tag(MarkupToken(raw, "img", is_void=True), attributes)
            return
        self.add(text, [raw, *[""] * (len(text) - 1)], offset)
        start = len(self.characters) - len(text)
        self.items.append(Item(start, start + len(text), text, raw, attributes=attributes))

    def tag(self, token: MarkupToken, attributes: Parts = ()) -> None:
        """Add a tag, as the end of an element if it is one."""
        parent = self.opened[-1] if self.opened else None
        index, character = len(self.tags), len(self.characters)
        if token.is_end and self.waiting[token.name]:
            while self.names[start := self.opened.pop()] != token.name:
                self.waiting[self.names[start]] -= 1
            self.waiting[token.name] -= 1
            self.tags[start] = replace(self.tags[start], partner=index)
            self.tags.append(Tag(character, token.raw, start, self.tags[start].parent, attributes))
        else:
            is_alone = token.is_void or token.name == "!"
            self.is_apart |= is_alone and token.name in _IMAGES
            self.tags.append(Tag(character, token.raw, None, parent, attributes, is_alone))
            if not (token.is_end or is_alone):
                self.opened.append(index)
                self.waiting[token.name] += 1
        self.names.append(token.name)

    def block(self, offset: int | None = None) -> tuple[Block, ...]:
        """Return the block, if there is one.

        Args:
            offset: that of its end in the document; ``None`` if offsets are those in the block.
        """
        if not self.characters and not self.tags:
            return ()
        origins = () if offset is None else (*self.origins, offset)
        text, tags = "".join(self.characters), _without_unclosed(self.tags)
        raw = text if self.raw == self.characters else self.raw  # a list takes longer to send
        return (Block(text, raw, origins, tags, tuple(self.items), self.is_markup, self.escapes),)

    def add(self, text: str, raw: str | list[str], offset: int = 0) -> None:
        """Add characters, and how each is written."""
        if self.is_apart and text:
            self.is_apart = False
            if self.characters and LETTER.fullmatch(self.characters[-1]) and LETTER.match(text):
                self.add(" ", [""], offset)  # the model must not read `dog<img>runs` as a word
        self.characters += text
        self.raw += raw
        self.origins += range(offset, offset + len(text)) if isinstance(raw, str) else [offset] * len(text)


def _without_unclosed(tags: list[Tag]) -> tuple[Tag, ...]:
    """Tags whose parents are elements with both tags in the block."""
    kept: list[Tag] = []
    for tag in tags:
        if tag.parent is not None and tags[tag.parent].partner is None:
            tag = replace(tag, parent=kept[tag.parent].parent)
        kept.append(tag)
    return tuple(kept)
