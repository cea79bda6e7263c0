"""Arguments of ICU messages that have texts for several cases, such as ``{n, plural, one {# dog} other {# dogs}}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from edgeformer_runtime.text.block import Block, Item, overlapping

_MAX_DEPTH = 4
"""Arguments inside arguments."""
# Lengths are limited so that searching takes linear time.
_BALANCED = r"[^{}]{0,1000}+"
for _ in range(2 * _MAX_DEPTH):
    _BALANCED = rf"(?:[^{{}}]{{1,1000}}+|\{{{_BALANCED}\}}){{0,100}}+"
_ARGUMENT = re.compile(
    r"\{\s{0,9}[\w.-]{1,80}\s{0,9},\s{0,9}(?P<kind>plural|select|selectordinal)\s{0,9},"
    rf"(?P<cases>(?:\s{{0,99}}(?:offset:\d+|[\w=-]{{1,80}}\s{{0,99}}\{{{_BALANCED}\}})){{1,100}}+)\s{{0,99}}\}}"
)
_CASE = re.compile(rf"[\w=-]{{1,80}}\s{{0,99}}\{{(?P<text>{_BALANCED})\}}")
_PART = re.compile(rf"(?P<argument>\{{{_BALANCED}\}})|#")
"""An argument inside a case, or what stands for the number."""
_SYNTAX = {"'": "’", "{": "(", "}": ")"}
"""What a translation has in place of characters with a meaning."""


def with_arguments(block: Block) -> Block:
    """A block in which such arguments are items, whose texts are translated one by one."""
    raw, items = list(block.raw), list(block.items)
    for match in _ARGUMENT.finditer(block.text) if "{" in block.text else ():
        start, end = match.span()
        has_tags = any(start < tag.place < end for tag in block.tags)
        if overlapping(block.items, start, end) or has_tags:
            continue
        parts: list[str | Block] = []
        place = start
        for case in _CASE.finditer(block.text, *match.span("cases")):
            first, last = case.span("text")
            parts += ["".join(block.raw[place:first]), _case(block, first, last, has_number=match["kind"] != "select")]
            place = last
        parts.append("".join(block.raw[place:end]))
        written = "".join(block.raw[start:end])
        items.append(Item(start, end, match[0], written, attributes=tuple(parts)))
        raw[start:end] = [written, *[""] * (end - start - 1)]
    if len(items) == len(block.items):
        return block
    return replace(block, raw=raw, items=tuple(sorted(items, key=lambda item: item.start)))


def _case(block: Block, start: int, end: int, *, has_number: bool) -> Block:
    """The text of a case."""
    part = replace(
        block,
        text=block.text[start:end],
        raw=block.raw[start:end],
        origins=[block.origin(place) for place in range(start, end + 1)],
        tags=(),
        items=(),
        escapes={**block.escapes, **{ord(old): block.escape(new) for old, new in _SYNTAX.items()}},
    )
    return replace(part, items=tuple(_kept(part, has_number=has_number)))


def _kept(block: Block, *, has_number: bool) -> Iterator[Item]:
    """Parts of a case that are not translated."""
    for match in _PART.finditer(block.text):
        if not _ARGUMENT.fullmatch(match[0]) and (has_number or match["argument"]):
            yield Item(*match.span(), match[0], "".join(block.raw[match.start() : match.end()]))
