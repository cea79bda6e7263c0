"""Normalization of text by SentencePiece models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from edgeformer_runtime.tokenizer.charsmap import Charsmap

SPACE = "\u2581"
"""Stands for a space in pieces."""


class Spaces(NamedTuple):
    """What a SentencePiece model does to spaces."""

    remove_extra: bool
    """Remove spaces at the start and at the end, and all but one in between."""
    dummy: Literal["prefix", "suffix"] | None
    """Where a space is added, so that words are the same pieces there as elsewhere."""


class Normalizer:
    """Normalizes text exactly as SentencePiece does. Thread-safe.

    Args:
        charsmap: rules for characters.
        spaces: rules for spaces.
        user_defined: user-defined symbols, which stay as they are.

    Raises:
        ValueError: these rules cannot be followed exactly.
    """

    def __init__(self, charsmap: Charsmap, spaces: Spaces, user_defined: Iterable[str] = ()) -> None:
        self._charsmap, self._spaces = charsmap, spaces
        self._kept = by_first_character(user_defined)
        if spaces.remove_extra and (
            charsmap.has_double_spaces or any("  " in symbol for symbols in self._kept.values() for symbol in symbols)
        ):
            # SentencePiece leaves these as they are, although it removes all others.
            raise ValueError("a replacement or a user-defined symbol has two spaces in a row")

    def __call__(self, text: str) -> str:
        """Return the normal form of a text. It has no space, but U+2581 instead."""
        if not text:
            return ""
        normal = self._charsmap.replace(text, self._kept)
        remove_extra, dummy = self._spaces
        if remove_extra:
            normal = normal.lstrip(" ")
            while "  " in normal:
                normal = normal.replace("  ", " ")
        normal = normal.replace(" ", SPACE)
        if dummy == "prefix":
            normal = SPACE + normal
        if remove_extra:
            normal = normal.rstrip(SPACE)  # including those that were typed
        if dummy == "suffix" and (normal or not self._is_blank(text)):
            normal += SPACE
        return normal

    def _is_blank(self, text: str) -> bool:
        """Whether a text is nothing but spaces, which are removed, so that SentencePiece adds none."""
        return self._spaces.remove_extra and all(chunk == " " for chunk in self._charsmap.chunks(text, self._kept))


def by_first_character(symbols: Iterable[str]) -> dict[str, Sequence[str]]:
    """Group symbols by their first characters, longest first."""
    groups: dict[str, list[str]] = {}
    for symbol in sorted(symbols, key=len, reverse=True):
        groups.setdefault(symbol[0], []).append(symbol)
    return dict(groups)
