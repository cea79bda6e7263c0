"""Markdown as blocks of text with tags: emphasis, links and the like go around the words translated from theirs."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any

from edgeformer_runtime.errors import ConfigError, missing_package
from edgeformer_text.block import Block, Parts
from edgeformer_text.markup.builder import ENTITY, BlockBuilder
from edgeformer_text.markup.tokens import INLINE, MarkupToken, html_tokens
from edgeformer_text.protected import FORMULA

_FRONT_MATTER = re.compile(
    r"""
    (?:
        ---[ \t]*\r?\n.*?\n(?:---|\.\.\.)        # YAML
        |\+\+\+[ \t]*\r?\n.*?\n\+\+\+          # TOML
    )
    [ \t]*(?:\r?\n|\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_CONTAINER = re.compile(r"^([ \t>]*)(?=(?:!!!|\?\?\?\+?|===)[ \t]|\[\^[^\]]+\]:)")
"""Before what has indented paragraphs in extensions of Markdown: admonitions, tabs, footnotes."""
_RAW_HTML = re.compile(
    r"<(?:[?]|!(?!--.*?-->[ \t]*\S)|(?:script|pre|style|textarea)(?=[\s>]))", re.DOTALL | re.IGNORECASE
)
"""The beginning of HTML whose content is not text; what follows a comment is."""
_COPIED_LINE = re.compile(r"\[!\w+\]$|:{3,}|(?:!!!|\?\?\?\+?)\s|===\s+\"|</?[a-zA-Z!][^>]*>$")
"""Beginnings of admonitions and tabs, and tags of HTML, alone in a line."""
_NEW_BLOCK = re.compile(r":\s|\|")
"""What begins a definition of a term, or a row of a table without a head."""
_PREFIX = re.compile(r"\[[ xX]\]\s+|:\s+|\[\^[^\]]+\]:\s+")
"""Boxes of tasks, and what begins a definition or a footnote."""
_MAX_NESTING = 100
_LINK_TARGET = r"\([^()\n]*(?:\([^()\n]*\)[^()\n]*){0,9}\)|\[[^\]\n]{0,200}\]"
"""What follows the text of a link: an address in parentheses, or a label."""
_INLINE_SYNTAX = re.compile(
    rf"""
    (?P<copied>
        (?<!`)(?P<ticks>`{{1,8}})(?!`)(?:[^`]|(?<!`)(?!(?P=ticks)(?!`))`+){{1,1000}}?(?P=ticks)(?!`)   # `code`
        |<(?:https?://|mailto:)[^<>\s]*>                                                     # <https://example.com>
        |<(?P<element>code|kbd|samp|tt|var)\b[^<>]*>[^<>]{{0,1000}}</(?P=element)>             # <kbd>Ctrl</kbd>
        |{FORMULA.replace("#", "[#]")}                                                       # $x^2$
    )
    |(?P<image>!\[[^\]\n]{{0,1000}}\](?:{_LINK_TARGET})?)                                    # ![text](file)
    |(?P<note>
        \[\^[^\]\n]{{1,200}}\]                                                              # [^1]
        |<(?P<level>su[bp])\b[^<>]*>(?P<sign>(?:(?![^\W\d_])[^<>\n]){{1,20}})</(?P=level)>     # H<sub>2</sub>O
    )
    |(?P<close>\](?:{_LINK_TARGET}))|(?P<open>\[)|(?P<end>\])                                # brackets of links
    |(?P<break>(?:[ ]{{2,1000}}|\\)\r?\n(?:[ \t]*>)*)                                        # a line break
    |(?P<line>\n[ \t]*>(?:[ \t]*>)*)                                                        # a quotation goes on
    |(?P<html></?(?P<name>[a-zA-Z][a-zA-Z0-9-]*)[^<>]*>|<!--.{{0,2000}}?-->)
    |(?P<escape>\\[!-/:-@\[-`{{-~])                                                         # \*
    |(?P<entity>{ENTITY.pattern.replace("#", "[#]")})
    |(?P<emphasis>\*{{1,3}}|_{{1,3}}|~~)
    |(?P<cell>\|)
    """,
    re.DOTALL | re.VERBOSE,
)
_IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\](?P<end>.*)", re.DOTALL)
_TITLE = re.compile(r"""\(\s*(?:<[^<>]*>|[^<\s]\S*)\s+(?P<quote>["'])(?P<text>.*)(?P=quote)\s*\)""", re.DOTALL)
"""What follows the text of a link or an image, if it has a title."""
_ESCAPED = frozenset("\\`*_{}[]<>#+|~&$")
"""Characters that are escaped in a translation if they are in its source."""


def markdown_parts(text: str) -> Iterator[str | Block]:
    """Divide Markdown into text to copy and blocks to translate; all of it, in order."""
    offset = 0
    if match := _FRONT_MATTER.match(text):
        yield match[0]
        offset = match.end()
    lines = _LINE.findall(text, offset)
    source = "\n".join(_CONTAINER.sub(r"\1-   ", line.rstrip("\r\n")) for line in lines)
    tokens, found = list[Any](), dict[str, Any]()
    parser = _parser()
    parser.block.parse(source, parser, found, tokens)
    labels, written = frozenset(map(_label, found.get("references", ()))), 0
    for before, token in pairwise([None, *tokens]):
        is_row = token.type == "tr_open"
        is_text = token.type == "inline" and before.type in ("heading_open", "paragraph_open")
        if is_row or is_text or (token.type == "html_block" and not _RAW_HTML.match(token.content)):
            first, last = token.map
            yield "".join(lines[written:first])
            yield from _row(lines[first], labels) if is_row else _blocks(lines[first:last], token.content, labels)
            written = last
    yield "".join(lines[written:])


@cache
def _parser() -> Any:
    """Return what finds paragraphs, headings, rows of tables and HTML; inline syntax is found here."""
    try:
        from markdown_it import MarkdownIt
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("Markdown", error.name, "text")) from None
    return MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table")


def _row(line: str, labels: frozenset[str]) -> Iterator[str | Block]:
    return _paragraph(line, len(line) - len(line.lstrip(" \t>")), labels, is_row=True)


def _blocks(lines: Sequence[str], content: str, labels: frozenset[str]) -> Iterator[str | Block]:
    """Divide a paragraph, heading or block of HTML.

    Args:
        lines: its lines as the document has them.
        content: its text, without what is before it in each line, such as the markers of lists and quotations.
        labels: labels of links.
    """
    paragraph, start = "", 0
    for line, text in zip_longest(lines, content.split("\n")[: len(lines)], fillvalue=""):
        text = text.strip()
        is_copied = not text or text not in line or _COPIED_LINE.match(text) is not None
        if is_copied or _NEW_BLOCK.match(text):
            yield from _paragraph(paragraph, start, labels)
            paragraph = ""
        if is_copied:
            yield line
            continue
        offset = line.rindex(text)
        start, end = start if paragraph else offset, offset + len(text)
        paragraph += line
        if line[end:].strip():  # the signs after a heading
            yield from _paragraph(line[:end], start, labels)
            yield line[end:]
            paragraph = ""
    yield from _paragraph(paragraph, start, labels)


def _label(text: str) -> str:
    """A label of a link, to be compared with others."""
    return " ".join(text.split()).casefold()


def _paragraph(text: str, start: int, labels: frozenset[str], *, is_row: bool = False) -> Iterator[str | Block]:
    if not text:
        return
    while prefix := _PREFIX.match(text, start):
        start = prefix.end()
    end = max(start, len(text.rstrip()))
    yield text[:start]
    matches = list(_INLINE_SYNTAX.finditer(text, start, end))
    pairs, is_row = _pairs(matches, labels), is_row or text.startswith("|", start)
    builder, offset = _MarkdownBuilder(labels=labels, pairs=pairs), start
    for match in matches:
        builder.plain(text[offset : match.start()])
        offset = match.end()
        is_cell = is_row and match["cell"] is not None
        is_block_tag = match["name"] is not None and match["name"].lower() not in INLINE
        if is_cell or is_block_tag or match["break"] is not None:
            yield from builder.block()
            yield match[0]
            builder = _MarkdownBuilder(labels=labels, pairs=pairs)
        else:
            builder.inline(match)
    builder.plain(text[offset:end])
    yield from builder.block()
    yield text[end:]


def _pairs(matches: Sequence[re.Match[str]], labels: frozenset[str]) -> dict[int, tuple[str, bool]]:
    """Find the delimiters of emphasis and the brackets of links; others are text.

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
        text, sign = match.string, match[0]
        if match["open"] is not None:
            brackets.append(len(opened))
            opened.append(match)
        elif match["emphasis"] is not None:
            before, after = text[: match.start()][-1:], text[match.end() : match.end() + 1]
            in_word = sign[0] == "_" and before.isalnum() and after.isalnum()
            if before.strip() and not in_word and waiting[sign] > 0:
                start = len(opened) - 1
                while opened[start][0] != sign:
                    start -= 1
                close(start, match.start(), sign)
            elif after.strip() and not in_word:
                opened.append(match)
                waiting[sign] += 1
        elif brackets and (match["close"] is not None or match["end"] is not None):
            start = brackets.pop()
            own = text[opened[start].end() : match.start()]
            label = own if sign in ("]", "][]") else sign[2:-1]
            if sign.startswith("](") or _label(label) in labels:
                close(start, match.start(), sign if sign.startswith("](") else f"][{label}]")
    return pairs


@dataclass
class _MarkdownBuilder(BlockBuilder):
    """Collects the text and tags of a block."""

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
            name = match["emphasis"] or "["
            titled = _title_parts(raw[1:]) if is_end and name == "[" else ()
            self.tag(MarkupToken(raw, name, is_end), ("]", *titled) if titled else ())
        elif match["image"] is not None:
            self._image(raw)
        elif match["html"] is not None:
            self.tag(next(html_tokens(raw)))
        elif match["line"] is not None:
            self.add("\n", [raw])
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
        self.tag(MarkupToken(raw, "img", is_void=True), parts)


def _title_parts(end: str) -> Parts:
    """Divide what follows the text of a link or an image into text to copy and its title; nothing if it has none."""
    match = _TITLE.fullmatch(end)
    if match is None:
        return ()
    start, stop = match.span("text")
    return (end[:start], *_attribute(match["text"], match["quote"]), end[stop:])


def _attribute(text: str, delimiters: str) -> Parts:
    """A title or the description of an image, which a delimiter would end."""
    matches = list(_INLINE_SYNTAX.finditer(text))
    builder, offset = _MarkdownBuilder(pairs=_pairs(matches, frozenset())), 0
    for match in matches:
        builder.plain(text[offset : match.start()])
        builder.inline(match)
        offset = match.end()
    builder.plain(text[offset:])
    builder.escapes |= {ord(character): f"\\{character}" for character in delimiters}
    return builder.block()
