"""Subtitles: SubRip (``.srt``) and WebVTT (``.vtt``). Every cue keeps its times and its number of lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from edgeformer_runtime.text.block import Block
from edgeformer_runtime.text.documents.document import Document, decoded
from edgeformer_runtime.text.markup import html_parts

_NEXT = r"[ \t]*(?:\d+[ \t\r]*\n[ \t]*)?(?:\d+:)?\d{1,2}:\d\d[.,]\d{1,3}[ \t]*-->"
"""What a cue begins with, perhaps its number before."""
_CUE = re.compile(rf"(?m)^[^\n]*-->[^\n]*\n(?P<text>(?:(?!{_NEXT})[^\n]*\S[^\n]*(?:\n|\Z))*)")
"""The line with the times, and the text up to the next blank line, or the next cue where that line is missing."""
_MAX_LINES = 8
"""A cue with more lines is not a subtitle; its translation is one line."""
_TAG = re.compile(r"<[^<>]*>")
_POSITION = re.compile(r"(?:\{\\[^{}\n]*\})*")
"""Where a cue is shown, such as ``{\\an8}``."""
_SPEAKER = re.compile(r"^(?:-\s?|[A-Z][A-Z .]{1,30}:\s)", re.MULTILINE)
"""A line that does not continue the one before it."""


def read_srt(content: bytes, name: str) -> Document:
    """Read a SubRip file."""
    return _read(content, name, entities=False)


def read_vtt(content: bytes, name: str) -> Document:
    """Read a WebVTT file."""
    return _read(content, name, entities=True)


def _read(content: bytes, name: str, *, entities: bool) -> Document:
    mark, text = decoded(content, f"`{name}`")
    kept: list[str] = []
    pieces: list[list[str | Block]] = []
    lines: list[int] = []
    place = 0
    for cue in _CUE.finditer(text):
        source = cue["text"].rstrip()
        kept.append(text[place : cue.start("text")])
        place = cue.start("text") + len(source)
        count = source.count("\n") + 1
        is_dialogue = len(_SPEAKER.findall(source)) > 1
        pieces.append(_parts(source, entities, is_dialogue=is_dialogue))
        lines.append(1 if is_dialogue else count)
    return Document(pieces, partial(_written, mark, [*kept, text[place:]], lines))


def _parts(source: str, entities: bool, *, is_dialogue: bool) -> list[str | Block]:
    """A cue as one block; each line of a dialogue as its own."""
    if not is_dialogue:
        place = _POSITION.match(source).end()  # type: ignore[union-attr]  # it may be empty
        return [source[:place], *html_parts(source[place:], entities=entities, is_cue=True)]
    parts: list[str | Block] = []
    for line in source.splitlines(keepends=True):
        start = match.end() if (match := _SPEAKER.match(line)) else 0
        end = len(line.rstrip("\r\n"))
        parts += [line[:start], *html_parts(line[start:end], entities=entities, is_cue=True), line[end:]]
    return parts


def _written(mark: str, kept: Sequence[str], lines: Sequence[int], texts: Sequence[str], language: str) -> bytes:
    written = [mark]
    for before, count, text in zip(kept, lines, texts, strict=False):
        written += [before, _wrapped(text, count, "\r\n" if before.endswith("\r\n") else "\n")]
    return "".join([*written, kept[-1]]).encode("utf-8")


def _wrapped(text: str, count: int, end: str) -> str:
    """Divide a text into lines of about the same length."""
    if count == 1 or count > _MAX_LINES:
        return text
    text = " ".join(text.split())
    lines = []
    for left in range(count, 1, -1):
        middle = len(_TAG.sub("", text)) / left
        places = [match.start() for match in re.finditer(r" (?![^<]*>)", text)]
        if not places:
            break
        place = min(places, key=lambda place: abs(len(_TAG.sub("", text[:place])) - middle))
        lines.append(text[:place])
        text = text[place + 1 :]
    return end.join([*lines, text])
