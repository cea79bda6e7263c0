"""Markdown as blocks of text with tags: emphasis, links and the like go around the words translated from theirs."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edgeformer_runtime.text.block import Block, Parts
from edgeformer_runtime.text.markup.builder import ENTITY, BlockBuilder
from edgeformer_runtime.text.markup.tokens import INLINE, Token, html_tokens
from edgeformer_runtime.text.protected import FORMULA

_FENCE = re.compile(
    r"(?P<prefix>(?:[ \t]*+(?:>|[-*+][ \t]++|\d{1,9}[.)][ \t]++))*+)[ \t]*+(?P<fence>`{3,}(?![^\n]*`)|~{3,})"
)
"""The first line of fenced code, perhaps in a quotation or a list."""
_RAW_HTML = re.compile(r"\s*<(?:(?P<comment>!--)|(?:script|pre|style|textarea)(?=[\s>]))", re.IGNORECASE)
_RAW_HTML_END = re.compile(r"</(?:script|pre|style|textarea)>", re.IGNORECASE)
_COMMENT_END = re.compile("-->")
_FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\r?\n.*?\n(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?\n\+\+\+)[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
_DEFINITION = re.compile(r"^[ ]{0,3}\[(?!\^)([^\]\n]+)\]:\s", re.MULTILINE)
_COPIED_LINE = re.compile(
    r"\s*$"
    r"|\s*(?:>\s*)+\[!\w+\]\s*$"
    r"|\s*(?::{3,}|!!!\s|\?\?\?\+?\s|===\s+\")"
    r"|\s*\[(?!\^)[^\]]+\]:\s"
    r"|\s*(?:[-*_]\s*){3,}$"
    r"|\s*(?:=+|-+)\s*$"
    r"|\s*+\|?[\s:-]++\|[\s:|-]*$"
    r"|\s*</?[a-zA-Z!][^>]*>\s*$"
)
"""Blank lines, beginnings of admonitions, link definitions, rules, underlines of headings and tables, and tags of HTML
blocks."""
_INDENT = re.compile(r"[ \t]*")
_CONTAINER = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+|(?P<four>\[\^[^\]]+\]:|!!!|\?\?\?|===\s))")
"""Beginning of what indented paragraphs belong to: after a list marker, or by four columns."""
_HEADING = re.compile(r"[ ]{0,3}#{1,6}\s")
_TABLE_DELIMITER = re.compile(r"\s*+\|?\s*+:?-++:?\s*+\|[\s:|-]*$")
"""What is below the first row of a table."""
_PREFIX = re.compile(r"\s*(?:(?:>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,9}[.)]\s+|#{1,6}\s+|:\s+|\[\^[^\]]+\]:\s+)\s*)*")
_STARTS_BLOCK = re.compile(r"\s*(?:>|[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|:\s|\||\[\^[^\]]+\]:)")
_INLINE = re.compile(
    r"(?P<copied>(?<!`)(?P<ticks>`{1,8})(?!`)(?:[^`]|(?<!`)(?!(?P=ticks)(?!`))`+){1,1000}?(?P=ticks)(?!`)"
    r"|<(?:https?://|mailto:)[^<>\s]*>|<(?P<element>code|kbd|samp|tt|var)\b[^<>]*>[^<>]{0,1000}</(?P=element)>"
    rf"|{FORMULA})"
    r"|(?P<image>!\[[^\]\n]{0,1000}\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9}\)|\[[^\]\n]{0,200}\])?)"
    r"|(?P<note>\[\^[^\]\n]{1,200}\]|<(?P<level>su[bp])\b[^<>]*>(?P<sign>(?:(?![^\W\d_])[^<>\n]){1,20})</(?P=level)>)"
    r"|(?P<close>\](?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9}\)|\[[^\]\n]{0,200}\]))|(?P<open>\[)|(?P<end>\])"
    r"|(?P<break>(?:[ ]{2,1000}|\\)\r?\n)"
    r"|(?P<html></?(?P<name>[a-zA-Z][a-zA-Z0-9-]*)[^<>]*>|<!--.{0,2000}?-->)|(?P<escape>\\[!-/:-@\[-`{-~])"
    rf"|(?P<entity>{ENTITY.pattern})"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)|(?P<cell>\|)",
    re.DOTALL,
)
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\](?P<end>.*)", re.DOTALL)
_TITLE = re.compile(r"""\(\s*(?:<[^<>]*>|[^<\s]\S*)\s+(?P<quote>["'])(?P<text>.*)(?P=quote)\s*\)""", re.DOTALL)
"""What follows the text of a link or an image, if it has a title."""
_TAGS = {
    "*": ("<em>", "</em>"),
    "**": ("<strong>", "</strong>"),
    "***": ("<strong><em>", "</em></strong>"),
    "~~": ("<del>", "</del>"),
}
"""How marks are written where they would not be read."""
_ESCAPED = frozenset("\\`*_{}[]<>#+|~&$")
"""Characters that are escaped in a translation if they are in its source."""


def markdown_parts(text: str) -> Iterator[str | Block]:
    """Divide Markdown into text to copy and blocks to translate; all of it, in order."""
    offset = 0
    if match := _FRONT_MATTER.match(text):
        yield match[0]
        offset = match.end()
    labels = frozenset(_label(match[1]) for match in _DEFINITION.finditer(text, offset))
    copied_lines, indentation = _CopiedLines(), _Indentation()
    paragraph: list[str] = []
    in_table = False
    for line in text[offset:].splitlines(keepends=True):
        is_raw = copied_lines.has(line)
        copied = is_raw or _COPIED_LINE.match(line.rstrip("\r\n")) is not None
        copied = indentation.is_code(line, in_paragraph=bool(paragraph)) or copied
        is_delimiter = copied and not is_raw and _TABLE_DELIMITER.match(line) is not None
        if is_delimiter and paragraph:
            yield from _paragraph("".join(paragraph[:-1]), labels)
            yield from _paragraph(paragraph[-1], labels, is_row=True)
            paragraph = []
        if copied or in_table or _STARTS_BLOCK.match(line):
            yield from _paragraph("".join(paragraph), labels, is_row=in_table)
            paragraph = []
        in_table = (in_table and not copied) or is_delimiter
        if copied:
            yield line
        elif _HEADING.match(line):
            yield from _paragraph(line, labels)
        else:
            paragraph.append(line)
    yield from _paragraph("".join(paragraph), labels, is_row=in_table)


@dataclass
class _CopiedLines:
    """Finds fenced code, and HTML whose content is not text."""

    end: re.Pattern[str] | None = None
    """What the last line has; ``None`` outside."""
    in_quote: bool = False

    def has(self, line: str) -> bool:
        """Return whether the next line belongs to them."""
        if self.in_quote and not line.lstrip().startswith(">"):
            self.end, self.in_quote = None, False
        if self.end is not None:
            if self.end.search(line):
                self.end, self.in_quote = None, False
            return True
        if match := _FENCE.match(line):
            fence = match["fence"]
            self.end = re.compile(rf"^[ \t>]*{fence[0]}{{{len(fence)},}}\s*$")
            self.in_quote = ">" in match["prefix"]
            return True
        if match := _RAW_HTML.match(line):
            end = _COMMENT_END if match["comment"] else _RAW_HTML_END
            if not end.search(line):
                self.end = end
                return True
            return not match["comment"]
        return False


@dataclass
class _Indentation:
    """Tells indented code from paragraphs of lists."""

    columns: list[int] = field(default_factory=list)
    """Where the text of each list item around begins."""

    def is_code(self, line: str, *, in_paragraph: bool) -> bool:
        """Return whether the next line is indented code, which is never inside a paragraph."""
        if not line.strip():
            return False
        column = _column(line, _INDENT)
        container = _CONTAINER.match(line)
        if in_paragraph and container is None:
            return False
        while self.columns and self.columns[-1] > column:
            self.columns.pop()
        if container is not None:
            self.columns.append(column + 4 if container["four"] else _column(line, _CONTAINER))
            return False
        return column >= 4 + (self.columns[-1] if self.columns else 0)


def _column(line: str, pattern: re.Pattern[str]) -> int:
    """Columns that the beginning of a line takes."""
    match = pattern.match(line)
    return len(match[0].expandtabs(4)) if match else 0


def _label(text: str) -> str:
    """A label of a link, to be compared with others."""
    return " ".join(text.split()).casefold()


def _paragraph(text: str, labels: frozenset[str], *, is_row: bool = False) -> Iterator[str | Block]:
    if not text:
        return
    prefix = _PREFIX.match(text)
    start = prefix.end() if prefix else 0
    end = max(start, len(text.rstrip()))
    yield text[:start]
    matches = list(_INLINE.finditer(text, start, end))
    pairs, is_row = _pairs(matches, labels), is_row or text.lstrip().startswith("|")
    builder, offset = _Builder(labels=labels, pairs=pairs), start
    for match in matches:
        builder.plain(text[offset : match.start()])
        offset = match.end()
        is_cell = is_row and match["cell"] is not None
        is_block_tag = match["name"] is not None and match["name"].lower() not in INLINE
        if is_cell or is_block_tag or match["break"] is not None:
            yield from builder.block()
            yield match[0]
            builder = _Builder(labels=labels, pairs=pairs)
        else:
            builder.inline(match)
    builder.plain(text[offset:end])
    yield from builder.block()
    yield text[end:]


def _pairs(matches: Sequence[re.Match[str]], labels: frozenset[str]) -> dict[int, tuple[str, bool]]:
    """Find the marks of emphasis and the brackets of links; others are text.

    Returns:
        How each is written, and whether it is an end, by its offset. A link whose text is its label gets its label
        after it, since its text will be another one.
    """
    pairs: dict[int, tuple[str, bool]] = {}
    opened: list[re.Match[str]] = []
    brackets: list[int] = []  # positions among those opened
    waiting: Counter[str] = Counter()

    def close(start: int, end: int, written: str) -> None:
        pairs[opened[start].start()], pairs[end] = (opened[start][0], False), (written, True)
        waiting.subtract(match[0] for match in opened[start:])
        del opened[start:]
        while brackets and brackets[-1] >= start:
            brackets.pop()

    for match in matches:
        text, mark = match.string, match[0]
        if match["open"] is not None:
            brackets.append(len(opened))
            opened.append(match)
        elif match["mark"] is not None:
            before, after = text[: match.start()][-1:], text[match.end() : match.end() + 1]
            in_word = mark[0] == "_" and before.isalnum() and after.isalnum()
            if before.strip() and not in_word and waiting[mark] > 0:
                start = len(opened) - 1
                while opened[start][0] != mark:
                    start -= 1
                close(start, match.start(), mark)
            elif after.strip() and not in_word:
                opened.append(match)
                waiting[mark] += 1
        elif brackets and (match["close"] is not None or match["end"] is not None):
            start = brackets.pop()
            own = text[opened[start].end() : match.start()]
            label = own if mark in ("]", "][]") else mark[2:-1]
            if mark.startswith("](") or _label(label) in labels:
                close(start, match.start(), mark if mark.startswith("](") else f"][{label}]")
    return pairs


@dataclass
class _Builder(BlockBuilder):
    """Collects the text and marks of a block."""

    escapes: dict[int, str] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    """Labels of links that are defined elsewhere."""
    pairs: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """What :func:`_pairs` returns."""

    def inline(self, match: re.Match[str]) -> None:
        """Add what is not text."""
        raw = match[0]
        if match["escape"] is not None or (match["entity"] is not None and len(html.unescape(raw)) == 1):
            character = raw[1] if match["escape"] is not None else html.unescape(raw)
            self.add(character, [raw])
            if character in _ESCAPED or raw.startswith("&"):
                self.escapes[ord(character)] = raw
        elif match["copied"] is not None:
            self.item(raw, raw)
        elif match.start() in self.pairs:
            raw, is_end = self.pairs[match.start()]
            name = match["mark"] or "["
            titled = _title_parts(raw[1:]) if is_end and name == "[" else ()
            spare = _TAGS[name.replace("_", "*")][is_end] if match["mark"] else ""
            self.tag(Token(raw, name, is_end), ("]", *titled) if titled else (), spare)
        elif match["image"] is not None:
            self._image(raw)
        elif match["html"] is not None:
            self.tag(next(html_tokens(raw)))
        elif match["note"] is not None:
            self.item(match["sign"] if match["level"] == "sub" else "", raw)
        else:
            self.add(raw, raw)

    def _image(self, raw: str) -> None:
        """Add an image, whose description is translated."""
        image = _IMAGE.fullmatch(raw)
        assert image is not None
        text, end = image["text"], image["end"]
        if end in ("", "[]") and _label(text) in self.labels:
            end = f"[{text}]"
        parts = ("![", *_attribute(text, "[]"), "]", *(_title_parts(end) or (end,)))
        self.tag(Token(raw, "img", is_void=True), parts)


def _title_parts(end: str) -> Parts:
    """Divide what follows the text of a link or an image into text to copy and its title; nothing if it has none."""
    match = _TITLE.fullmatch(end)
    if match is None:
        return ()
    start, stop = match.span("text")
    return (end[:start], *_attribute(match["text"], match["quote"]), end[stop:])


def _attribute(text: str, delimiters: str) -> Parts:
    """A title or the description of an image, which a delimiter would end."""
    matches = list(_INLINE.finditer(text))
    builder, offset = _Builder(pairs=_pairs(matches, frozenset())), 0
    for match in matches:
        builder.plain(text[offset : match.start()])
        builder.inline(match)
        offset = match.end()
    builder.plain(text[offset:])
    builder.escapes |= {ord(character): f"\\{character}" for character in delimiters}
    return builder.block()
