"""Access keys of menus and buttons: the mark before a letter, as in ``_File`` and ``E&xit``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgeformer_runtime.text.block import Block, Item, overlapping
from edgeformer_runtime.text.documents.document import Piece
from edgeformer_runtime.text.protected import protected_items

_MARK = re.compile(r"(?<!&)&(?!&)|_")  # `&&` stands for one `&`
_NO_KEY = re.compile(r"\w*;")
"""What follows ``&`` in an entity."""
_WORD = re.compile(r"\w*")
_MIN_LETTERS = 3
"""Words with a mark inside have at least this many letters, unlike ``x&y``."""
_NO_ALPHABET = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]")
"""Scripts whose translations have the key in parentheses, as in ``文件(_F)``."""
_LABEL_END = " \t\n.…:：。"


@dataclass(frozen=True)
class AccessKey:
    """The access key of a message."""

    part: int
    """Position, among the parts of the message, of the block that has it."""
    block: Block
    place: int
    """The mark in the block."""

    def put_into(self, translation: str, parts: Piece) -> str:
        """Put the mark before the same letter, at best that of a word, or else before the first letter.

        Args:
            translation: the translation of the message, without the mark.
            parts: the parts of the translation.
        """
        mark, letter = self.block.text[self.place], self.block.text[self.place + 1]
        places = [place for block in parts if isinstance(block, Block) for place in _letters(block)]
        if not places:
            return translation
        same = [place for place in places if translation[place].lower() == letter.lower()]
        if not same and _NO_ALPHABET.match(translation, places[0]):
            place, mark = len(translation.rstrip(_LABEL_END)), f"({mark}{letter.upper()})"
        else:
            place = next((place for place in same if _starts_word(translation, place)), (same or places)[0])
        return translation[:place] + mark + translation[place:]


def find_key(parts: Piece) -> AccessKey | None:
    """Find the access key of a message; ``None`` if it has none, or if it is not certain."""
    keys: dict[str, list[AccessKey]] = {}
    for index, block in enumerate(parts):
        if isinstance(block, Block):
            items = _items(block)
            for match in _MARK.finditer(block.text):
                if block.raw[match.start()] == match[0] and not overlapping(items, *match.span()):
                    keys.setdefault(match[0], []).append(AccessKey(index, block, match.start()))
    found = [same[0] for same in keys.values() if len(same) == 1 and _is_key(same[0].block.text, same[0].place)]
    return found[0] if len(found) == 1 else None


def _items(block: Block) -> list[Item]:
    return sorted([*block.items, *protected_items(block)], key=lambda item: item.start)


def _letters(block: Block) -> list[int]:
    """Places, in the document, of the letters of a block that may have a mark."""
    items = _items(block)
    return [
        block.origin(place)
        for place, character in enumerate(block.text)
        if character.isalpha() and block.raw[place] == character and not overlapping(items, place, place + 1)
    ]


def _starts_word(text: str, place: int) -> bool:
    return not text[max(0, place - 1) : place].isalnum()


def _is_key(text: str, place: int) -> bool:
    """Return whether a mark is before a letter of a word, and not part of an identifier, entity or name like AT&T."""
    before, after = _word_at(text[:place][::-1], 0)[::-1], _word_at(text, place + 1)
    if not after[:1].isalpha() or _NO_KEY.match(text, place + 1):
        return False
    if not before:
        return True
    word = before + after
    is_capitalized = text[place] == "&" or word[0].isupper()  # unlike snake_case
    return is_capitalized and word.isalpha() and word[1:].islower() and len(word) >= _MIN_LETTERS


def _word_at(text: str, place: int) -> str:
    match = _WORD.match(text, place)
    return match[0] if match else ""
