"""Markdown as blocks of text with tags: emphasis, links and the like go around the words translated from theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from edgeformer_runtime.text.block import Block, Item, Tag
from edgeformer_runtime.text.markup import INLINE

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?\n(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_COPIED_LINE = re.compile(
    r"\s*$"
    r"|(?:\t|[ ]{4,})(?![-*+]\s|\d+[.)]\s)"
    r"|\s*\[(?!\^)[^\]]+\]:\s"
    r"|\s*(?:[-*_]\s*){3,}$"
    r"|\s*(?:=+|-+)\s*$"
    r"|\s*\|?[\s:-]+\|[\s:|-]*$"
    r"|\s*</?[a-zA-Z!][^>]*>\s*$"
)
"""Blank lines, indented code, link definitions, rules, underlines of headings and tables, and tags of HTML blocks."""
_TABLE_DELIMITER = re.compile(r"\s*\|?\s*:?-+:?\s*\|[\s:|-]*$")
"""What is below the first row of a table."""
_PREFIX = re.compile(r"\s*(?:(?:>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,9}[.)]\s+|#{1,6}\s+|\[\^[^\]]+\]:\s+)\s*)*")
_STARTS_BLOCK = re.compile(r"\s*(?:>|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|\||\[\^[^\]]+\]:)")
_INLINE = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`{1,8})(?!`)(?:[^`]|(?<!`)(?!(?P=ticks)(?!`))`+){1,1000}?(?P=ticks)(?!`))"
    r"|(?P<image>!\[[^\]\n]{0,1000}\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9}\)|\[[^\]\n]{0,200}\]))"
    r"|(?P<link><(?:https?://|mailto:)[^<>\s]*>)|(?P<note>\[\^[^\]\n]{1,200}\])"
    r"|(?P<close>\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9}\)|\[[^\]\n]{0,200}\]))|(?P<open>\[)"
    r"|(?P<break>(?:[ ]{2,1000}|\\)\r?\n)"
    r"|(?P<html></?(?P<name>[a-zA-Z][a-zA-Z0-9-]*)[^<>]*>|<!--.{0,2000}?-->)|(?P<escape>\\[!-/:-@\[-`{-~])"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)|(?P<cell>\|)",
    re.DOTALL,
)

_MAX_DEPTH = 50
"""Marks that may be open at a time; others are text."""


def markdown_parts(text: str) -> Iterator[str | Block]:
    """Divide Markdown into text to copy and blocks to translate; all of it, in order."""
    place = 0
    if match := _FRONT_MATTER.match(text):
        yield match[0]
        place = match.end()
    fence = ""
    paragraph: list[str] = []
    in_table = False
    for line in text[place:].splitlines(keepends=True):
        match = _FENCE.match(line)
        copied = bool(fence or match or _COPIED_LINE.match(line.rstrip("\r\n")))
        is_delimiter = copied and not fence and _TABLE_DELIMITER.match(line) is not None
        if is_delimiter and paragraph:
            yield from _paragraph("".join(paragraph[:-1]))
            yield from _paragraph(paragraph[-1], is_row=True)
            paragraph = []
        if copied or in_table or _STARTS_BLOCK.match(line):
            yield from _paragraph("".join(paragraph), is_row=in_table)
            paragraph = []
        in_table = (in_table and not copied) or is_delimiter
        if copied:
            yield line
        else:
            paragraph.append(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not line.strip(" \r\n`~"):
            fence = ""
    yield from _paragraph("".join(paragraph), is_row=in_table)


def _paragraph(text: str, *, is_row: bool = False) -> Iterator[str | Block]:
    if not text:
        return
    prefix = _PREFIX.match(text)
    start = prefix.end() if prefix else 0
    end = max(start, len(text.rstrip()))
    yield text[:start]
    builder, place, is_row = _Builder(), start, is_row or text.lstrip().startswith("|")
    for match in _INLINE.finditer(text, start, end):
        builder.text(text[place : match.start()])
        place = match.end()
        is_cell = is_row and match["cell"] is not None
        is_block_tag = match["name"] is not None and match["name"].lower() not in INLINE
        if is_cell or is_block_tag or match["break"] is not None:
            yield builder.block()
            yield match[0]
            builder = _Builder()
        else:
            builder.inline(match)
    builder.text(text[place:end])
    yield builder.block()
    yield text[end:]


@dataclass
class _Builder:
    """Collects the text and marks of a block."""

    characters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Add text."""
        self.characters += text
        self.raw += text

    def inline(self, match: re.Match[str]) -> None:
        """Add what is not text."""
        if match["escape"] is not None:
            self.characters.append(match[0][1])
            self.raw.append(match[0])
        elif match["code"] is not None or match["link"] is not None:
            start = len(self.characters)
            self.characters += match[0]
            self.raw += [match[0], *[""] * (len(match[0]) - 1)]
            self.items.append(Item(start, len(self.characters), match[0], match[0]))
        elif match["mark"] is not None:
            self._mark(match)
        elif match["open"] is not None:
            if len(self.opened) < _MAX_DEPTH:
                self._tag("[", opens=True)
            else:
                self.text("[")
        elif match["close"] is not None:
            self._close("[", match[0])
        elif match["cell"] is not None:
            self.text(match[0])
        else:
            self._tag(match[0])

    def block(self) -> Block:
        """Return the block."""
        text = "".join(self.characters)
        tags = [replace(tag, parent=self._closed_parent(tag.parent)) for tag in self.tags]
        return Block(text, self.raw, range(len(text) + 1), tuple(tags), tuple(self.items), is_markup=True)

    def _closed_parent(self, parent: int | None) -> int | None:
        while parent is not None and self.tags[parent].partner is None:
            parent = self.tags[parent].parent
        return parent

    def _mark(self, match: re.Match[str]) -> None:
        """Add asterisks or the like, which open or close emphasis, or are text."""
        before = match.string[match.start() - 1 : match.start()]
        after = match.string[match.end() : match.end() + 1]
        in_word = match[0][0] == "_" and before.isalnum() and after.isalnum()
        closes = bool(before) and not before.isspace() and not in_word
        if closes and any(self.tags[index].raw == match[0] for index in self.opened):
            self._close(match[0], match[0])
        elif after and not after.isspace() and not in_word and len(self.opened) < _MAX_DEPTH:
            self._tag(match[0], opens=True)
        else:
            self.text(match[0])

    def _tag(self, raw: str, *, opens: bool = False) -> None:
        self.tags.append(Tag(len(self.characters), raw, None, self.opened[-1] if self.opened else None))
        if opens:
            self.opened.append(len(self.tags) - 1)

    def _close(self, opening: str, raw: str) -> None:
        start = next((index for index in reversed(self.opened) if self.tags[index].raw == opening), None)
        if start is None:
            self._tag(raw)
            return
        while self.opened.pop() != start:
            pass
        self.tags[start] = replace(self.tags[start], partner=len(self.tags))
        self.tags.append(Tag(len(self.characters), raw, start, self.tags[start].parent))
