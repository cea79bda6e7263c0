"""HTML as blocks of text with tags. Any string is read: what is no tag is text, and no character is lost."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from edgeformer_runtime.text.block import Block, Item, Tag


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font g i img ins kbd label mark math nobr output q rp rt "
    "ruby s samp small span strike strong sub sup svg time tt u var wbr x"
)
"""Elements inside sentences; tags of others end a sentence."""
VOID = _names("area base br col embed hr img input link meta param source track wbr x")
"""Elements without an end tag."""
COPIED = _names("code kbd math pre samp script style svg textarea tt var")
"""Elements whose content is not translated."""
_RAW_TEXT = ("script", "style", "textarea")
"""Elements in which nothing is a tag but their own end tag."""
_COMMENTS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<!", ">"), ("<?", ">"))
"""Beginnings and ends of comments and the like."""
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/<>"']*)((?:[^<>"']|"[^"]*"|'[^']*')*+)>""")
_PLAIN_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*)([^<>]*)>")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});")
_NOT_TRANSLATED = re.compile(r"""\btranslate\s*=\s*["']?no\b|\bclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)
_MAX_OPEN_QUOTES = 100
"""Tags with an attribute whose quotation does not end, each of which takes a search to the end of the text."""


@dataclass(frozen=True)
class _Token:
    raw: str
    name: str = ""
    """Name of the tag in lowercase; empty for text, and ``!`` for comments."""
    is_end: bool = False
    is_copied: bool = False
    """Whether its element must not be translated."""

    @property
    def is_void(self) -> bool:
        return self.name in VOID or self.raw.endswith("/>")


def escaped(text: str) -> str:
    """Write text in HTML."""
    return html.escape(text, quote=False)


def readable(text: str) -> str:
    """The text of HTML, without tags and what is not translated."""
    return " ".join(part.text for part in html_parts(text) if isinstance(part, Block))


def html_parts(text: str, *, entities: bool = True, is_cue: bool = False) -> Iterator[str | Block]:
    """Divide HTML into text to copy and blocks to translate; all of it, in order.

    Args:
        text: the document.
        entities: whether text has entities, such as ``&amp;``.
        is_cue: whether the text is a subtitle, in which tags do not end a sentence and may have classes (``<c.red>``).
    """
    builder = _Builder(escaped if entities else str)
    tokens = list(_tokens(text))
    if is_cue:
        tokens = [replace(token, name=token.name.partition(".")[0]) for token in tokens]
    ends = _element_ends(tokens)
    offset = index = 0
    while index < len(tokens):
        token = tokens[index]
        last = ends[index] if token.is_copied else None
        end = index + 1 if last is None else last + 1
        raw = "".join(part.raw for part in tokens[index:end])
        inline = is_cue or token.name in INLINE or token.name == "!"
        if not token.name:
            builder.text(raw, offset)
        elif not inline:
            yield from builder.block(offset)
            yield raw
        elif end > index + 1:
            builder.item("".join(part.raw for part in tokens[index:end] if not part.name), raw, offset)
        else:
            builder.tag(token)
        offset, index = offset + len(raw), end
    yield from builder.block(offset)


class _Scanner:
    """Finds tags. What was searched for in vain is not searched for again, so that reading takes linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._missing: set[str] = set()
        self._open_quotes = 0

    def token(self, place: int) -> _Token | None:
        """Read the tag or comment at a place."""
        for start, end in _COMMENTS:
            if self.text.startswith(start, place) and (last := self._find(end, place + len(start))) >= 0:
                return _Token(self.text[place : last + len(end)], "!")
        if self.text.startswith("<!--", place):  # as in browsers, the rest of the text
            return _Token(self.text[place:], "!")
        match = _TAG.match(self.text, place) if self._open_quotes < _MAX_OPEN_QUOTES else None
        if match is None:
            self._open_quotes += self.text[place + 1 : place + 2].isalpha()
            match = _PLAIN_TAG.match(self.text, place)
        if match is None:
            return None
        name, is_end = match[2].lower(), bool(match[1])
        is_copied = not is_end and (name in COPIED or bool(_NOT_TRANSLATED.search(match[3])))
        return _Token(match[0], name, is_end, is_copied)

    def raw_text(self, name: str, place: int) -> str:
        """Read what is up to the end tag of an element; nothing if there is none."""
        if name in self._missing:
            return ""
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self.text, place)
        if end is None:
            self._missing.add(name)
            return ""
        return self.text[place : end.start()]

    def _find(self, end: str, place: int) -> int:
        found = -1 if end in self._missing else self.text.find(end, place)
        if found < 0:
            self._missing.add(end)
        return found


def _tokens(text: str) -> Iterator[_Token]:
    """Divide HTML into tags and text."""
    scanner = _Scanner(text)
    place = start = 0
    while (place := text.find("<", place)) >= 0:
        found = scanner.token(place)
        if found is None:
            place += 1
            continue
        if start < place:
            yield _Token(text[start:place])
        yield found
        place = start = place + len(found.raw)
        if found.name in _RAW_TEXT and not found.is_end and not found.is_void:
            raw = scanner.raw_text(found.name, place)
            if raw:
                yield _Token(raw)
            place = start = place + len(raw)
    if start < len(text):
        yield _Token(text[start:])


def _element_ends(tokens: list[_Token]) -> list[int | None]:
    """Position of the end tag that belongs to each start tag; elements that overlap have none."""
    ends: list[int | None] = [None] * len(tokens)
    opened: list[int] = []
    waiting: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if not token.name or token.name == "!" or token.is_void:
            continue
        if not token.is_end:
            opened.append(index)
            waiting[token.name] = waiting.get(token.name, 0) + 1
        elif waiting.get(token.name):
            while tokens[start := opened.pop()].name != token.name:
                waiting[tokens[start].name] -= 1
            waiting[token.name] -= 1
            ends[start] = index
    return ends


@dataclass
class _Builder:
    """Collects the text and tags of a block."""

    escape: Callable[[str], str]
    characters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    waiting: Counter[str] = field(default_factory=Counter)
    """Number of opened elements by name."""

    def text(self, raw: str, offset: int) -> None:
        """Add text, in which entities stand for characters."""
        place = 0
        for match in _ENTITY.finditer(raw) if self.escape is escaped else ():
            character = html.unescape(match[0])
            if len(character) == 1 and character != "\ufffd":
                self._add(raw[place : match.start()], raw[place : match.start()], offset + place)
                self._add(character, [match[0]], offset + match.start())
                place = match.end()
        self._add(raw[place:], raw[place:], offset + place)

    def item(self, text: str, raw: str, offset: int) -> None:
        """Add an element that is copied."""
        text = html.unescape(text)
        if not text.strip():
            self.tags.append(Tag(len(self.characters), raw, None, self.opened[-1] if self.opened else None))
            self.names.append("")
            return
        start = len(self.characters)
        self._add(text, [raw, *[""] * (len(text) - 1)], offset)
        self.items.append(Item(start, start + len(text), text, raw))

    def tag(self, token: _Token) -> None:
        """Add a tag, as the end of an element if it is one."""
        parent = self.opened[-1] if self.opened else None
        index, place = len(self.tags), len(self.characters)
        if token.is_end and self.waiting[token.name]:
            while self.names[start := self.opened.pop()] != token.name:
                self.waiting[self.names[start]] -= 1
            self.waiting[token.name] -= 1
            self.tags[start] = replace(self.tags[start], partner=index)
            self.tags.append(Tag(place, token.raw, start, self.tags[start].parent))
        else:
            self.tags.append(Tag(place, token.raw, None, parent))
            if not (token.is_end or token.is_void or token.name == "!"):
                self.opened.append(index)
                self.waiting[token.name] += 1
        self.names.append(token.name)

    def block(self, offset: int) -> Iterator[str | Block]:
        """Return the block, if there is one, and begin another."""
        if self.characters or self.tags:
            text, origins = "".join(self.characters), (*self.origins, offset)
            tags = _without_unclosed(self.tags)
            yield Block(text, self.raw, origins, tags, tuple(self.items), is_markup=True, escape=self.escape)
        self.__init__(self.escape)  # type: ignore[misc]  # begins with nothing again

    def _add(self, text: str, raw: str | list[str], offset: int) -> None:
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
