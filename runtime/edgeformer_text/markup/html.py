"""From HTML to blocks of text with tags, and attributes that people read, such as ``alt`` and ``title``."""

from __future__ import annotations

import html
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from edgeformer_text.block import Block, Parts, Tag
from edgeformer_text.lexicon import LEXICON
from edgeformer_text.markup.builder import ATTRIBUTE_ENTITY, ENTITY, ESCAPES, LEGACY_ENTITY, BlockBuilder
from edgeformer_text.markup.tokens import BLOCKS, INLINE, MarkupToken, element_ends, html_tokens

_INLINE = INLINE | {"", "!"}
_MAX_SIGN_TOKENS = 10
"""Most tokens of a footnote number."""
_ATTRIBUTE = re.compile(
    r"""(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+)))?"""
)
_HTML = LEXICON["html"]
_STYLE_SHEETS = ("link", "style")
"""Elements whose title is the name of a style sheet."""
_ESCAPES: dict[str, Mapping[int, str]] = {
    "double": {**ESCAPES, ord('"'): "&quot;"},
    "single": {**ESCAPES, ord("'"): "&#39;"},
    "bare": {ord(character): f"&#{ord(character)};" for character in f"\"'`=<>&{string.whitespace}"},
}
"""How a value is written between double quotes, single quotes or none."""


def readable(text: str) -> str:
    """The text of HTML, without tags and what is not translated."""
    return " ".join(part.text for part in html_parts(text) if isinstance(part, Block))


def html_parts(
    text: str, *, entities: bool = True, is_cue: bool = False, is_message: bool = False
) -> Iterator[str | Block]:
    """Divide HTML into text to copy and blocks to translate; all of it, in order.

    Args:
        text: the document.
        entities: whether text has entities, such as ``&amp;``.
        is_cue: whether the text is a subtitle, in which tags do not end a sentence and may have classes (``<c.red>``).
        is_message: whether the text is a message of a program, in which tags of unknown elements do not end a sentence.
    """
    escapes = ESCAPES if entities else {}
    builder = BlockBuilder(escapes)
    tokens = list(html_tokens(text))
    if is_cue:
        tokens = [replace(token, name=token.name.partition(".")[0]) for token in tokens]
    if is_message:  # `<link>` may be a name of one's own
        closed = {token.name for token in tokens if token.is_end}
        tokens = [replace(token, is_void=token.is_void and token.name not in closed) for token in tokens]
    ends = element_ends(tokens)
    offset = index = 0
    while index < len(tokens):
        token = tokens[index]
        is_sign = _is_raised_sign(tokens, index, ends[index])
        end = (ends[index] if token.is_copied or is_sign else None) or index + 1
        raw = "".join([part.raw for part in tokens[index:end]])
        attributes = () if is_cue or not token.has_translation else _with_attributes(token, raw)
        inline = is_cue or token.name in INLINE or token.name == "!" or (is_message and token.name not in BLOCKS)
        if not token.name:
            builder.text(raw, offset, ENTITY if is_message else LEGACY_ENTITY)
        elif not inline:
            yield from builder.block(offset)
            builder = BlockBuilder(escapes)
            yield Block("", "", (offset,), (Tag(0, raw, attributes=attributes),)) if attributes else raw
        elif end > index + 1:
            content = "".join(part.raw for part in tokens[index:end] if not part.name)
            is_unread = is_sign and token.name == "sup"  # `word1` is no word, but `H2O` is
            builder.item("" if is_unread else html.unescape(content), raw, offset, attributes)
        else:
            builder.tag(token, attributes)
        offset, index = offset + len(raw), end
    yield from builder.block(offset)


def _is_raised_sign(tokens: Sequence[MarkupToken], start: int, end: int | None) -> bool:
    """Whether an element is a footnote number, an exponent or an index: above or below the line, without letters."""
    if tokens[start].name not in ("sub", "sup") or end is None or end - start > _MAX_SIGN_TOKENS:
        return False
    text = "".join(token.raw for token in tokens[start:end] if not token.name)
    return (
        bool(text.strip())
        and not any(map(str.isalpha, text))
        and {token.name for token in tokens[start:end]} <= _INLINE
    )


def _with_attributes(token: MarkupToken, raw: str) -> Parts:
    """Divide a tag, or an element that is copied, into text to copy and attributes to translate; nothing if it has
    none."""
    parts = _tag_parts(token.raw, token.name) if token.name not in ("", "!") else ()
    rest = raw[len(token.raw) :]
    return (*parts, rest) if parts and rest else parts


def _tag_parts(tag: str, name: str) -> Parts:
    """Divide a start tag into text to copy and the values of attributes that are translated; nothing if it has none.
    Its name is in lowercase."""
    found = [match for match in _ATTRIBUTE.finditer(tag, len(name) + 1) if match.lastgroup != "name"]
    values = {match["name"].lower(): match[str(match.lastgroup)] for match in found}
    parts: list[str | Block] = []
    written = 0
    for match in found:
        kind = str(match.lastgroup)
        start, end = match.span(kind)
        if kind == "bare" and tag.endswith("/>") and end == len(tag) - 1:
            end -= 1  # XML's end of an empty element
        if _is_read(name, match["name"].lower(), values):
            builder = BlockBuilder(_ESCAPES[kind])
            builder.text(tag[start:end], 0, ATTRIBUTE_ENTITY)
            parts += [tag[written:start], *builder.block()]
            written = end
    return (*parts, tag[written:]) if parts else ()


def _is_read(element: str, attribute: str, values: dict[str, str]) -> bool:
    """Return whether people read an attribute of an element with these attributes."""
    if attribute == "value":
        return element == "input" and values.get("type", "").lower() in _HTML["button_types"]
    if attribute == "content":
        return element == "meta" and values.get("name", values.get("property", "")).lower() in _HTML["metadata"]
    if attribute == "title" and element in _STYLE_SHEETS:
        return False
    return attribute in _HTML["attributes"] or element in _HTML["attributes_of"].get(attribute, ())
