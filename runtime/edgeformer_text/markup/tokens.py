"""HTML as tags and text. Any string is read: what is not a tag is text, and no character is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from edgeformer_text.lexicon import LEXICON, split_names

INLINE = split_names(LEXICON["html"]["inline"])
"""Elements inside sentences; tags of others end a sentence."""
BLOCKS = split_names(
    "address article aside blockquote body br button caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr iframe legend li main menu nav object "
    "ol optgroup option p pre script search section select style summary table tbody td textarea tfoot th thead title "
    "tr ul video"
)
"""Elements of HTML that begin a paragraph or the like."""
VOID = split_names(LEXICON["html"]["void"])
"""Elements without an end tag."""
COPIED = split_names(LEXICON["html"]["copied"])
"""Elements whose content is not translated."""
_SECTIONS = split_names("tbody tfoot thead")
_CLOSED_BY = {
    "dd": split_names("dd dt"),
    "dt": split_names("dd dt"),
    "li": split_names("li"),
    "optgroup": split_names("optgroup"),
    "option": split_names("optgroup option"),
    "p": split_names(
        "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 "
        "h2 h3 h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul"
    ),
    "rp": split_names("rp rt"),
    "rt": split_names("rp rt"),
    **dict.fromkeys(_SECTIONS, _SECTIONS),
    "td": _SECTIONS | split_names("td th tr"),
    "th": _SECTIONS | split_names("td th tr"),
    "tr": _SECTIONS | split_names("tr"),
}
"""Elements whose end tag may be omitted, and the start tags that end them; so do the end tags of elements around."""
_CLOSING = frozenset().union(*_CLOSED_BY.values())
_SCOPES = BLOCKS - _CLOSED_BY.keys() - {"address", "div"}
"""Elements in which a start tag ends nothing that is around them."""
_MAX_SEARCHED = 100
"""Elements around a start tag that it may end."""
_RAW_TEXT = ("script", "style", "textarea")
"""Elements in which nothing is a tag but their own end tag."""
_COMMENTS = (
    ("<!--", "-->"),
    ("<![CDATA[", "]]>"),
    ("<!", ">"),
    ("<?php", "?>"),
    ("<?=", "?>"),
    ("<?", ">"),
    ("<%", "%>"),
)
"""Beginnings and ends of comments, code of templates, and the like."""
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/<>"']*)((?:[^<>"']|"[^"]*"|'[^']*')*+)>""")
_PLAIN_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*)([^<>]*)>")
_NOT_TRANSLATED = re.compile(
    r"""(?<![\w-])(?:translate\s*=\s*["']?no\b|class\s*=\s*(?:["'][^"']*\b)?notranslate\b)""", re.IGNORECASE
)
_MAX_OPEN_QUOTES = 100
"""Tags with an attribute whose quotation does not end, each of which takes a search to the end of the text."""


@dataclass(frozen=True)
class MarkupToken:
    """A tag, a comment or text."""

    raw: str
    name: str = ""
    """Name of the tag in lowercase; empty for text, and ``!`` for comments."""
    is_end: bool = False
    is_copied: bool = False
    """Whether the content of its element must not be translated."""
    has_translation: bool = True
    """Whether its attributes may be translated."""
    is_void: bool = False
    """Whether its element has no end tag."""


class _Scanner:
    """Finds tags. What was searched for in vain is not searched for again, so that reading takes linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._missing: set[str] = set()
        self._open_quotes = 0

    def token(self, offset: int) -> MarkupToken | None:
        """Read the tag or comment at an offset."""
        for start, end in _COMMENTS:
            if self.text.startswith(start, offset) and (last := self._find(end, offset + len(start))) >= 0:
                return MarkupToken(self.text[offset : last + len(end)], "!")
        if self.text.startswith("<!--", offset):  # as in browsers, the rest of the text
            return MarkupToken(self.text[offset:], "!")
        match = _TAG.match(self.text, offset) if self._open_quotes < _MAX_OPEN_QUOTES else None
        if match is None:
            self._open_quotes += self.text[offset + 1 : offset + 2].isalpha()
            match = _PLAIN_TAG.match(self.text, offset)
        if match is None:
            return None
        name, is_end = match[2].lower(), bool(match[1])
        is_void = name in VOID or match[0].endswith("/>")
        is_marked = bool(_NOT_TRANSLATED.search(match[3]))
        is_copied = not is_end and (name in COPIED or is_marked)
        return MarkupToken(match[0], name, is_end, is_copied, not (is_end or is_marked), is_void)

    def raw_text(self, name: str, offset: int) -> str:
        """Read what is up to the end tag of an element; nothing if there is none."""
        if name in self._missing:
            return ""
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self.text, offset)
        if end is None:
            self._missing.add(name)
            return ""
        return self.text[offset : end.start()]

    def _find(self, end: str, offset: int) -> int:
        found = -1 if end in self._missing else self.text.find(end, offset)
        if found < 0:
            self._missing.add(end)
        return found


def html_tokens(text: str) -> Iterator[MarkupToken]:
    """Divide HTML into tags and text."""
    scanner = _Scanner(text)
    offset = start = 0
    while (offset := text.find("<", offset)) >= 0:
        found = scanner.token(offset)
        if found is None:
            offset += 1
            continue
        if start < offset:
            yield MarkupToken(text[start:offset])
        yield found
        offset = start = offset + len(found.raw)
        if found.name in _RAW_TEXT and not found.is_end and not found.is_void:
            raw = scanner.raw_text(found.name, offset)
            if raw:
                yield MarkupToken(raw)
            offset = start = offset + len(raw)
    if start < len(text):
        yield MarkupToken(text[start:])


def element_ends(tokens: list[MarkupToken]) -> list[int | None]:
    """Position after the last token of each element, by that of its start tag. Elements that overlap have none, unless
    their end tag may be omitted."""
    ends: list[int | None] = [None] * len(tokens)
    opened: list[int] = []
    waiting: Counter[str] = Counter()

    def close(count: int, end: int) -> None:
        """Leave ``count`` elements open."""
        while len(opened) > count:
            start = opened.pop()
            waiting[tokens[start].name] -= 1
            ends[start] = end if tokens[start].name in _CLOSED_BY else None

    for index, token in enumerate(tokens):
        if not token.name or token.name == "!" or (token.is_void and token.name not in _CLOSING):
            continue
        if not token.is_end:
            if token.name in _CLOSING:
                close(
                    _left_open([tokens[start].name for start in opened[-_MAX_SEARCHED:]], len(opened), token.name),
                    index,
                )
            if not token.is_void:
                opened.append(index)
                waiting[token.name] += 1
        elif waiting[token.name]:
            start = opened[-1]
            while tokens[start].name != token.name:
                close(len(opened) - 1, index)
                start = opened[-1]
            close(len(opened) - 1, index)
            ends[start] = index + 1
    close(0, len(tokens))
    return ends


def _left_open(around: list[str], count: int, name: str) -> int:
    """The number of elements that a start tag leaves open, of ``count``, the innermost of which are ``around`` it."""
    kept = count
    for depth, outer in enumerate(reversed(around), 1):
        if name in _CLOSED_BY.get(outer, ()):
            kept = count - depth
        elif kept < count or outer in _SCOPES:
            break
    return kept
