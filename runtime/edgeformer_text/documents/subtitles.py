"""Subtitles: SubRip (``.srt``) and WebVTT (``.vtt``). Every cue keeps its times and its number of lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from edgeformer_text.block import ACCENTS, Block, Span, spliced
from edgeformer_text.documents.document import Document, decoded
from edgeformer_text.markup.html import html_parts
from edgeformer_text.surface import UNSPACED

_TIMES = r"[ \t]*(?:\d+:)?\d{1,2}:\d\d[.,]\d{1,3}[ \t]*-->"
_PART = re.compile(
    rf"(?m)^{_TIMES}[^\n]*(?:\n|\Z)|(?P<text>(?:^(?!(?:[ \t]*\d+[ \t\r]*\n)?{_TIMES})[^\n]*\S[^\n]*(?:\n|\Z))+)"
)
"""The line with the times of a cue; or lines of text up to a blank line, or to the next cue, perhaps its number, where
that is missing."""
_MAX_LINES = 8
"""A cue with more lines is not a subtitle; its translation is one line."""
_TAG_OR_BREAK = re.compile(
    rf"<[^<>]*>|(?P<break> |(?<=[{UNSPACED}、。，！？])(?<![เ-ไ\u1039\u17d2])(?=[{UNSPACED}])(?![{ACCENTS}]))"
)
"""A tag; or where a line may end: at a space, or between letters of scripts without spaces."""
_NAME = r"[A-ZÀ-ÖØ-Þ][A-ZÀ-ÖØ-Þ\d\ .'’\#&-]{1,30}(?:\([^()\n]{1,30}\)\s?)?:\s"
_SPEAKER_CHANGE = re.compile(
    rf"""
    ^(?:<[^<>\n]*>|\{{\\[^{{}}\n]*\}})*                       # tags and positions at the beginning of a line, and then
    (?:
        (?:(?:>>+|[-‐–—])[ \t]?(?:{_NAME})?|{_NAME})           # a dash, a name, or both
        (?:[\[(](?P<said>[^\[\]()]+)[\])])?                    # and how it is said: `- (softly)`
        |[\[(](?P<alone>[^\[\]()]+)[\])]                       # or a stage direction
    )
    |^(?:\{{\\[^{{}}\n]*\}})+                                  # positions alone: `{{\an8}}`
    |\[(?P<inner>[^\[\]]+)\]                                  # a stage direction in the middle of a line
    |(?<=[.!?…\"”»])[ \t]+[-‐–—](?=[ \t])                      # somebody else in the same line
    """,
    re.MULTILINE | re.VERBOSE,
)
"""What begins a line that does not continue the one before it: who speaks (``- ``, ``TOM: ``, ``>> ``), where it is
shown (``{\\an8}``), and stage directions in brackets; and who else speaks in the same line."""


def read_subtitles(content: bytes, name: str, *, is_vtt: bool) -> Document:
    """Read a SubRip or a WebVTT file."""
    byte_order_mark, text = decoded(content, f"`{name}`")
    pieces: list[list[str | Block]] = []
    spans: list[Span] = []
    times = None
    for part in _PART.finditer(text):
        if part["text"] is None:
            times = part.end()
        elif times == part.start() or (times is not None and not is_vtt):  # WebVTT has other text after blank lines
            for start, end in _turns(text, *part.span()):
                start, end = end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip())
                if start < end:
                    spans.append((start, end))
                    pieces.append(list(html_parts(text[start:end], entities=is_vtt, is_cue=True)))
    return Document(pieces, lambda texts, language: (byte_order_mark + _written(text, spans, texts)).encode("utf-8"))


def _turns(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """What each speaker says in a cue, and what stage directions say, without the signs that say so."""
    for match in _SPEAKER_CHANGE.finditer(text, start, end):
        yield start, match.start()
        if match.lastgroup:
            yield match.span(match.lastgroup)
        start = match.end()
    yield start, end


def _written(text: str, spans: Sequence[Span], texts: Sequence[str]) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    lines = (text.count("\n", *span) + 1 for span in spans)
    changes = zip(spans, lines, texts, strict=True)
    return spliced(text, ((*span, _wrapped(new, count, end)) for span, count, new in changes))


def _wrapped(text: str, count: int, end: str) -> str:
    """Divide a text into lines of about the same length."""
    if count == 1 or count > _MAX_LINES:
        return text
    text = " ".join(text.split())
    lines = []
    for left in range(count, 1, -1):
        hidden, shown = 0, dict[int, int]()  # characters before each break
        for match in _TAG_OR_BREAK.finditer(text):
            if match["break"] is None:
                hidden += len(match[0])
            else:
                shown[match.start()] = match.start() - hidden
        if not shown:
            break
        middle = (len(text) - hidden) / left
        offset = min(shown, key=lambda offset: abs(shown[offset] - middle))
        lines.append(text[:offset])
        text = text[offset:].removeprefix(" ")
    return end.join([*lines, text])
