"""Message catalogs of gettext (``.po``): messages without a translation get one, marked as fuzzy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edgeformer_runtime.errors import DataError
from edgeformer_text.block import spliced
from edgeformer_text.documents.document import Document, Piece, decoded
from edgeformer_text.documents.messages import checked, message_parts, placeholders

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_FIELD = re.compile(
    rf"""
    ^(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]+      # the keyword,
    ({_STRING}(?:[ \t\r]*\n[ \t]*{_STRING})*)                   # and its strings, one a line
    """,
    re.MULTILINE | re.VERBOSE,
)
_KEYWORD = re.compile(r"(?m)^msg")
_FLAGS = re.compile(r"(?m)^#,(?P<flags>[^\r\n]*)")
_PREVIOUS = re.compile(r"(?m)^#\|")
"""What a fuzzy message was."""
_ESCAPE = re.compile(r"(?P<bytes>(?:\\x[0-9a-fA-F]{2}|\\[0-7]{1,3})+)|\\(?P<letter>.)", re.DOTALL)
_BYTE = re.compile(r"\\(?:x(?P<hex>..)|(?P<octal>[0-7]+))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_FORMS = re.compile(r"^Plural-Forms:[^\n]*\bnplurals\s*=\s*(\d)[^\n]*", re.MULTILINE)
_NO_LANGUAGE = re.compile(r"(\\n|\")Language:[ \t]*\\n")
_CHARSET = re.compile(r"(?<=charset=)(?!utf-?8\b)[^\s\\\";]+", re.IGNORECASE)
_CODE = re.compile(r"(?P<language>[a-z]{2,3})(?:[-_](?P<script>[A-Z][a-z]{3}))?(?:[-_](?P<country>[A-Z]{2}))?")
_COUNTRIES = {"Hans": "CN", "Hant": "TW"}
"""Countries that stand for a script in gettext."""


@dataclass
class _Message:
    """A message, and where its fields are."""

    start: int
    """Where its first field begins."""
    flags: list[re.Match[str]]
    """Comments with its flags."""
    text: str = ""
    plural: str = ""
    translations: list[re.Match[str]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the flags."""
        return [name.strip() for comment in self.flags for name in comment["flags"].split(",")]

    def sources(self, rule: re.Match[str] | None) -> list[str]:
        """What is translated for each plural form of a rule, or without one, for as many as the file has."""
        if not self.plural:
            return [self.text]
        forms = int(rule[1]) if rule else len(self.translations)
        # In some languages, the first form is that of other numbers too, such as 21.
        is_often = forms > 2 or (rule is not None and "%" in rule[0])
        is_one = forms > 1 and (not is_often or placeholders(self.text) == placeholders(self.plural))
        return [self.text if is_one and not index else self.plural for index in range(forms)]


class _Catalog:
    """A file, its messages without a translation, and what is translated for them."""

    def __init__(self, byte_order_mark: str, text: str, messages: Sequence[_Message]) -> None:
        self._byte_order_mark, self._text = byte_order_mark, text
        header = next((message for message in messages if not message.text), None)
        self._header = header.translations[0] if header and header.translations else None
        rule = _FORMS.search(_value(self._header[2])) if self._header else None
        missing = [m for m in messages if m.text and m.translations and not any(_value(t[2]) for t in m.translations)]
        self._missing = [(message, message.sources(rule)) for message in missing]

    def pieces(self, texts: Sequence[str] | None = None) -> list[Piece]:
        """What is translated, or the same messages in another language."""
        sources = [(source, message.names) for message, sources in self._missing for source in sources]
        texts = [source for source, _ in sources] if texts is None else texts
        return [message_parts(text, names) for text, (_, names) in zip(texts, sources, strict=True)]

    def written(self, texts: Sequence[str], language: str) -> bytes:
        """The file with translations."""
        remaining = iter(texts)
        changes = [self._language(language)] if self._header else []
        for message, sources in self._missing:
            translations = [checked(source, next(remaining), message.names) for source in sources]
            if all(translations):
                changes += self._changes(message, translations)
        return (self._byte_order_mark + spliced(self._text, sorted(changes))).encode("utf-8")

    def _changes(self, message: _Message, translations: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Places of the file, and what is to be there."""
        end = "\r\n" if "\r\n" in self._text else "\n"
        if not message.flags:
            yield message.start, message.start, f"#, fuzzy{end}"
        elif "fuzzy" not in message.names:
            offset = message.flags[0].start("flags")
            yield offset, offset, " fuzzy,"
        keys = [f"msgstr[{index}]" if message.plural else "msgstr" for index in range(len(translations))]
        lines = [f"{key} {_quoted(text, end)}" for key, text in zip(keys, translations, strict=True)]
        yield message.translations[0].start(), message.translations[-1].end(), end.join(lines)

    def _language(self, language: str) -> tuple[int, int, str]:
        """The header with the language, if it has none, and the encoding that the file is written in."""
        assert self._header is not None
        start, end = self._header.span()
        code = _CODE.match(language)
        header = _CHARSET.sub("UTF-8", self._header[0], count=1)
        if code is not None:
            country = code["country"] or _COUNTRIES.get(code["script"] or "")
            name = f"{code['language']}_{country}" if country else code["language"]
            header = _NO_LANGUAGE.sub(rf"\g<1>Language: {name}\\n", header, count=1)
        return start, end, header


def read_po(content: bytes, name: str) -> Document:
    """Read a message catalog. Translations that are there stay.

    Raises:
        DataError: a line cannot be read.
    """
    byte_order_mark, text = decoded(content, f"`{name}`")
    fields = list(_FIELD.finditer(text))
    known = {field.start() for field in fields}
    if wrong := next((match for match in _KEYWORD.finditer(text) if match.start() not in known), None):
        line = text.count("\n", 0, wrong.start()) + 1
        raise DataError(f"Line {line} of `{name}` is not a gettext message; check the file with msgfmt.")
    catalog = _Catalog(byte_order_mark, text, _messages(text, fields))
    return Document(catalog.pieces(), catalog.written, catalog.pieces)


def _messages(text: str, fields: Sequence[re.Match[str]]) -> list[_Message]:
    messages: list[_Message] = []
    end, last = 0, "msgstr"
    for match in fields:
        if last.startswith("msgstr") and match[1] in ("msgctxt", "msgid"):
            begin = max(end, text.rfind("\n#~", end, match.start()))  # obsolete messages are comments
            flags = list(_FLAGS.finditer(text, begin, match.start()))
            previous = _PREVIOUS.search(text, begin, match.start())
            messages.append(_Message(previous.start() if previous else match.start(), flags))
        end, last = match.end(), match[1]
        if not messages:
            continue
        if match[1] == "msgid":
            messages[-1].text = _value(match[2])
        elif match[1] == "msgid_plural":
            messages[-1].plural = _value(match[2])
        elif match[1].startswith("msgstr"):
            messages[-1].translations.append(match)
    return messages


def _value(strings: str) -> str:
    """What the strings of a field stand for."""
    joined = "".join(part[1:-1] for part in re.findall(_STRING, strings))
    return _ESCAPE.sub(_character, joined)


def _character(match: re.Match[str]) -> str:
    """What a letter or bytes, which are UTF-8 as the file is, stand for."""
    if match["letter"] is not None:
        return _LETTERS.get(match["letter"], match["letter"])
    codes = [int(byte["hex"], 16) if byte["hex"] else int(byte["octal"], 8) for byte in _BYTE.finditer(match[0])]
    return bytes(code & 0xFF for code in codes).decode("utf-8", errors="replace")


def _quoted(text: str, end: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _LETTERS.items():
        escaped = escaped.replace(character, f"\\{letter}")
    lines = re.findall(r".*?\\n|.+$", escaped) if "\\n" in escaped else []
    if len(lines) < 2:
        return f'"{escaped}"'
    return end.join(['""', *(f'"{line}"' for line in lines)])
