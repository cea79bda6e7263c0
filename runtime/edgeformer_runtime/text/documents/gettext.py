"""Message catalogs of gettext (``.po``): messages without a translation get one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from edgeformer_runtime.errors import DataError
from edgeformer_runtime.text.block import Block
from edgeformer_runtime.text.documents.document import Document, decoded

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_FIELD = re.compile(
    rf"(?m)^(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]+({_STRING}(?:[ \t\r]*\n[ \t]*{_STRING})*)"
)
_KEYWORD = re.compile(r"(?m)^msg")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True)
class _Gap:
    """A translation that is missing."""

    start: int
    end: int


def read_po(content: bytes, name: str) -> Document:
    """Read a message catalog. Translations that are there stay; the plural is translated for all forms but the first.

    Raises:
        DataError: a line cannot be read.
    """
    mark, text = decoded(content, name)
    fields = list(_FIELD.finditer(text))
    known = {field.start() for field in fields}
    if wrong := next((match for match in _KEYWORD.finditer(text) if match.start() not in known), None):
        line = text.count("\n", 0, wrong.start()) + 1
        raise DataError(f"Line {line} of `{name}` is not a gettext message; check the file with msgfmt.")
    pieces: list[list[str | Block]] = []
    gaps: list[_Gap] = []
    message = plural = ""
    for field in fields:
        value = _value(field[2])
        if field[1] == "msgid":
            message, plural = value, ""
        elif field[1] == "msgid_plural":
            plural = value
        elif field[1].startswith("msgstr") and message and not value:
            source = plural if plural and field[1] != "msgstr[0]" else message
            pieces.append([Block.plain(source)])
            gaps.append(_Gap(*field.span(2)))
    return Document(pieces, partial(_written, mark, text, gaps))


def _value(strings: str) -> str:
    """What the strings of a field stand for."""
    joined = "".join(part[1:-1] for part in re.findall(_STRING, strings))
    return _ESCAPE.sub(_character, joined)


def _character(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _LETTERS.get(code, code)


def _written(mark: str, text: str, gaps: Sequence[_Gap], translations: Sequence[str]) -> bytes:
    written, place = [mark], 0
    for gap, translation in zip(gaps, translations, strict=True):
        written += [text[place : gap.start], _quoted(translation)]
        place = gap.end
    return "".join([*written, text[place:]]).encode("utf-8")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _LETTERS.items():
        escaped = escaped.replace(character, f"\\{letter}")
    lines = re.findall(r".*?\\n|.+$", escaped) if "\\n" in escaped else []
    if len(lines) < 2:
        return f'"{escaped}"'
    return "\n".join(['""', *(f'"{line}"' for line in lines)])
