"""Words, signs and patterns that Python and TypeScript share: ``lexicon.json``, described where they are used.

Patterns are regular expressions in Python's syntax that JavaScript reads, too, after ``text/patterns.ts`` has replaced
its character classes: without possessive quantifiers, and with characters above U+FFFF as such.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec


class HtmlNames(msgspec.Struct, frozen=True):
    """Names of elements, separated by spaces, and of attributes."""

    inline: str
    copied: str
    void: str
    images: str
    attributes: tuple[str, ...]
    attributes_of: dict[str, tuple[str, ...]]
    button_types: tuple[str, ...]
    metadata: tuple[str, ...]


class ProtectedPattern(msgspec.Struct, frozen=True):
    """A kind of text that is not translated, with an example."""

    example: str
    pattern: str


class ProtectedText(msgspec.Struct, frozen=True):
    """Patterns, and ranges of characters, of what is not translated."""

    patterns: tuple[ProtectedPattern, ...]
    emoji: str
    emoji_parts: str
    sentence_end: str


class SurfaceMarks(msgspec.Struct, frozen=True):
    """Final punctuation, and repeated text."""

    closing: str
    questions: str
    exclamations: str
    marks: dict[str, tuple[str, str, str]]
    copies: str
    repeated: str
    abbreviation: str


class Scripts(msgspec.Struct, frozen=True):
    """Characters with special rules in some scripts."""

    unspaced: str
    unread: str
    elision: str


class Signs(msgspec.Struct, frozen=True):
    """Punctuation beside placeholders."""

    closing: str
    opening: str
    others: str
    apart: str


class SentencePatterns(msgspec.Struct, frozen=True):
    """Where sentences begin, and where long ones are split."""

    marker: str
    splits: tuple[str, ...]


class NumberPatterns(msgspec.Struct, frozen=True):
    """How languages write numbers."""

    space: str
    formats: tuple[tuple[str, str, str], ...]
    words: dict[str, str]
    ordinals: dict[str, str]
    time: str
    clock: str
    phone: str
    plain: str
    full_hour: str
    area: str
    thousands: str
    month: str
    myriads: str
    decade: str
    roman: str
    before_amount: str
    after_amount: str
    ordinal: str


class Lexicon(msgspec.Struct, frozen=True):
    """The content of the file."""

    html: HtmlNames
    protected: ProtectedText
    surface: SurfaceMarks
    scripts: Scripts
    signs: Signs
    sentences: SentencePatterns
    numbers: NumberPatterns


LEXICON = msgspec.json.decode(files(__package__).joinpath("lexicon.json").read_bytes(), type=Lexicon)


def base_code(language: str) -> str:
    """The language of a code without script and region, by which the lexicon has it: ``hi`` for ``hin_Deva``."""
    code = re.split("[-_]", language)[0]
    if len(code) != 3 or not (code.isascii() and code.isalpha()):
        return code
    from langcodes import Language  # most codes have two letters

    return Language.get(code).prefer_macrolanguage().language or code


def split_names(text: str) -> frozenset[str]:
    """Split a list of names."""
    return frozenset(text.split())
