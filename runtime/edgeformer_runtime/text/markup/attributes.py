"""Attributes of HTML elements that people read, such as ``alt`` and ``title``."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping

from edgeformer_runtime.text.block import Block, Parts
from edgeformer_runtime.text.markup.builder import ATTRIBUTE_ENTITY, ESCAPES, BlockBuilder

ATTRIBUTE = re.compile(
    r"""(?P<name>[^\s"'<>/=]+)(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+)))?"""
)
_GLOBAL = frozenset(
    ("title", "aria-label", "aria-description", "aria-placeholder", "aria-roledescription", "aria-valuetext")
)
"""Attributes of any element."""
_OWN = {
    "alt": ("area", "img", "input"),
    "label": ("optgroup", "option", "track"),
    "placeholder": ("input", "textarea"),
}
"""Attributes of certain elements."""
_STYLE_SHEETS = ("link", "style")
"""Elements whose title is the name of a style sheet."""
_BUTTONS = ("button", "reset", "submit")
"""Types of an ``input`` whose value is shown on it."""
_METADATA = ("description", "og:description", "og:title", "twitter:description", "twitter:title")
"""Names of a ``meta`` whose content people read."""
_ESCAPES: dict[str, Mapping[int, str]] = {
    "double": {**ESCAPES, ord('"'): "&quot;"},
    "single": {**ESCAPES, ord("'"): "&#39;"},
    "bare": {ord(character): f"&#{ord(character)};" for character in f"\"'`=<>&{string.whitespace}"},
}
"""How a value is written between double quotes, single quotes or none."""


def tag_parts(tag: str, name: str) -> Parts:
    """Divide a start tag into text to copy and the values of attributes that are translated; nothing if it has none.
    Its name is in lowercase."""
    found = [match for match in ATTRIBUTE.finditer(tag, len(name) + 1) if match.lastgroup != "name"]
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
        return element == "input" and values.get("type", "").lower() in _BUTTONS
    if attribute == "content":
        return element == "meta" and values.get("name", values.get("property", "")).lower() in _METADATA
    if attribute == "title" and element in _STYLE_SHEETS:
        return False
    return attribute in _GLOBAL or element in _OWN.get(attribute, ())
