"""A message of a program as blocks of text: directives such as ``%d``, and tags."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace

from edgeformer_text.block import Block, Item, overlapping
from edgeformer_text.documents.document import Piece
from edgeformer_text.markup.builder import ENTITY
from edgeformer_text.markup.html import html_parts
from edgeformer_text.protected import protected_items

_NUMBERED = frozenset(("c-format", "gcc-internal-format", "objc-format", "perl-format", "php-format"))
"""Flags of messages whose directives may have numbers, as in ``%2$s``."""
PRINTF = _NUMBERED | {"python-format"}
"""Flags of messages with directives of ``printf``."""
_DIRECTIVE = re.compile(
    r"""
    %%
    |%(?P<name>\([^()]*\)|\d+\$)?               # its name or number: `%(count)d`, `%2$s`
    [-#0\ +']*(?:\d+|\*)?(?:\.(?:\d+|\*))?      # flags, width and precision: `%-5.2f`
    (?:<[A-Za-z0-9]+>|(?:hh|ll|[hlLqjzt])?[a-zA-Z@])  # a macro such as `%<PRIu64>`, or its length and type
    """,
    re.VERBOSE,
)
_QT = frozenset(("kde-format", "qt-format", "qt-plural-format"))
_QT_DIRECTIVE = re.compile(r"%(?:L?\d{1,2}|n\b)")
_MARKUP = re.compile(
    r"""
    </[a-zA-Z][\w.:-]*\s*>                   # the end of an element,
    |<[a-zA-Z][\w.:-]*(?:\s[^<>]*)?/>        # one without content,
    |<(?:br|hr|img|input|wbr)\b[^<>]*>       # or one that never has any
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What makes a message HTML."""
_ACCESS_KEY = re.compile(
    r"""
    (?:
        (?<![\w&])[&_](?=[^\W\d_])            # at the beginning of a word: `_File`, `&File`
        |(?<=[^\W\d_])&(?=[^\W\d_]{2})       # inside one: `E&xit`
        |(?<=\b[A-Z])_(?=[a-z])              # behind its capital: `E_xit`
    )
    (?!\w*[_;])                             # neither an identifier nor an entity
    """,
    re.VERBOSE,
)
"""The sign before a letter, as in ``_File`` and ``E&xit``, but not in identifiers, entities and names like AT&T."""


def message_parts(text: str, flags: Collection[str]) -> Piece:
    """Divide a message into text to copy and blocks to translate, without the sign of an access key.

    Args:
        text: the message. Its line ends end sentences, also in HTML.
        flags: flags that say what its directives are, such as ``c-format``.
    """
    parts = list(_parts(text, flags))
    keys = [
        (index, part, key) for index, part in enumerate(parts) if isinstance(part, Block) for key in _access_keys(part)
    ]
    if len(keys) == 1:  # of several, none is certain
        index, block, key = keys[0]
        parts[index] = _without(block, [key])
    return parts


def _access_keys(block: Block) -> list[int]:
    """Characters of a block that stand before the letter of an access key."""
    items = sorted([*block.items, *protected_items(block)], key=lambda item: item.start)
    starts = [match.start() for match in _ACCESS_KEY.finditer(block.text)]
    return [start for start in starts if block.raw[start] in "&_" and not overlapping(items, start, start + 1)]


def _parts(text: str, flags: Collection[str]) -> Piece:
    parts: list[str | Block] = [Block.plain(text)]
    if _MARKUP.search(text) or ENTITY.search(text):
        parts = list(html_parts(text, entities=ENTITY.search(text) is not None, is_message=True))
        parts = [part if isinstance(part, str) else replace(part, is_markup=False) for part in parts]
    pattern = _DIRECTIVE if PRINTF & set(flags) else _QT_DIRECTIVE if _QT & set(flags) else None
    if pattern is None:
        return parts
    return [part if isinstance(part, str) else _with_directives(part, pattern) for part in parts]


def placeholders(text: str) -> list[str]:
    """The placeholders of a message, sorted."""
    return sorted(item.text for item in protected_items(Block.plain(text)))


def checked(message: str, translation: str, flags: Collection[str]) -> str:
    """A translation that a program can format: if its directives are in another order, they get numbers.

    Returns:
        The translation; empty if it cannot be formatted.
    """
    if not PRINTF & set(flags):
        return translation
    wanted, found = _directives(message), _directives(translation)
    if [match[0] for match in wanted if not match["name"]] == [match[0] for match in found if not match["name"]]:
        return translation if _texts(wanted) == _texts(found) else ""
    has_numbers = any(match["name"] or "*" in match[0] for match in wanted)
    if _texts(wanted) != _texts(found) or has_numbers or not _NUMBERED & set(flags):
        return ""
    waiting = [match[0] for match in wanted]
    for match in reversed(found):  # from the end, so that offsets before it stay
        number = len(waiting) - waiting[::-1].index(match[0])
        waiting[number - 1] = ""
        translation = f"{translation[: match.start() + 1]}{number}${translation[match.start() + 1 :]}"
    return translation


def _directives(text: str) -> list[re.Match[str]]:
    return [match for match in _DIRECTIVE.finditer(text) if match[0] != "%%"]


def _texts(directives: list[re.Match[str]]) -> list[str]:
    return sorted(match[0] for match in directives)


def _with_directives(block: Block, pattern: re.Pattern[str]) -> Block:
    """A block whose directives are items, and whose percent signs are written twice where the pattern says so."""
    matches = [match for match in pattern.finditer(block.text) if not overlapping(block.items, *match.span())]
    second = [match.end() - 1 for match in matches if match[0] == "%%"]
    items = [Item(*match.span(), match[0], match[0]) for match in matches if match[0] != "%%"]
    doubled = {offset - 1 for offset in second}
    raw = [written * (1 + (offset in doubled)) for offset, written in enumerate(block.raw)]
    escapes = {**block.escapes, ord("%"): "%%"} if pattern is _DIRECTIVE else block.escapes
    items = sorted([*block.items, *items], key=lambda item: item.start)
    return _without(replace(block, raw=raw, items=tuple(items), escapes=escapes), second)


def _without(block: Block, offsets: Sequence[int]) -> Block:
    """A block without some characters, in order, that are not part of an item."""

    def moved(offset: int) -> int:
        return offset - bisect_left(offsets, offset)

    kept = sorted(set(range(len(block.text))) - set(offsets))
    return replace(
        block,
        text="".join(block.text[offset] for offset in kept),
        raw=[block.raw[offset] for offset in kept],
        origins=[block.origin(offset) for offset in (*kept, len(block.text))],
        tags=tuple(replace(tag, offset=moved(tag.offset)) for tag in block.tags),
        items=tuple(replace(item, start=moved(item.start), end=moved(item.end)) for item in block.items),
    )
