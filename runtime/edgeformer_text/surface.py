"""What distinguishes a sentence on its surface only: capitals and final punctuation, and loops of the model."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from edgeformer_text.lexicon import LEXICON, base_code

_TERMINATOR = (
    r"[.!?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u0f0d-\u0f11\u104a\u104b"
    r"\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f"
    r"\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f\u1c3b\u1c3c\u1c7e\u1c7f\u2024\u2026\u203c\u203d\u2047-\u2049"
    r"\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61\u3002\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877"
    r"\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01"
    r"\uff0e\uff1f\uff61]"
)
"""A sentence terminator: Unicode's property Sentence_Terminal below U+10000, the ellipsis, the Tibetan shad."""
CLOSING: str = LEXICON["surface"]["closing"]
"""Quotation marks and brackets that may follow it."""
_FINAL = re.compile(rf"(?<!{_TERMINATOR})(?:{_TERMINATOR}|(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e])+[{CLOSING}]*$")
"""Final punctuation; after a Greek letter, a semicolon is a question mark."""
_UNMARKED = re.compile(rf"[\u0e00-\u0eff][{CLOSING}]*$")
"""The end of a sentence in Thai or Lao, which write no period."""
_ELLIPSIS = re.compile(r"\.{3,}|…+")
_TERMINATORS: dict[str, dict[str, str]] = {
    code: dict(zip(".?!", terminators, strict=True))
    for codes, terminators in LEXICON["surface"]["terminators"].items()
    for code in codes.split()
}
"""Period, question and exclamation mark of languages in which they differ from those of English."""
_QUESTIONS, _EXCLAMATIONS = LEXICON["surface"]["questions"], LEXICON["surface"]["exclamations"]
_COPIES = re.compile(LEXICON["surface"]["copies"], re.IGNORECASE)
"""Text that consists of copies of the same words."""
_SEPARATORS = re.compile(r"[\s,]+")
_REPEATED = re.compile(LEXICON["surface"]["repeated"], re.IGNORECASE)
"""Text without separators that consists of copies."""
_ABBREVIATION = re.compile(LEXICON["surface"]["abbreviation"], re.IGNORECASE)
_LOST = re.compile("\ufffd+")
_SEARCHED = 2000
"""Characters at the end of a text in which copies are searched for."""
_LETTERS = re.compile(r"[^\W\d_]+")
UNSPACED: str = LEXICON["scripts"]["unspaced"]
"""Scripts whose words have no space between them."""
MIN_CAPITALS = 6
"""Text with fewer letters may be an acronym."""


def period(language: str) -> str:
    """The period of a language; empty if it has none."""
    return _TERMINATORS.get(base_code(language), {}).get(".", ".")


def lacks_period(text: str) -> bool:
    """Return whether a sentence ends with a word or number."""
    return _ends_with_word(text.rstrip(CLOSING.replace("\\", "")))


def _ends_with_word(text: str) -> bool:
    """Return whether a text ends with a letter, with its vowel signs and accents, or a digit."""
    return unicodedata.category(text[-1:] or " ")[0] in "LMN"


def without_final_punctuation(text: str) -> str:
    """A sentence without the punctuation at its end, and the spaces before that."""
    found = _FINAL.search(text)
    return text[: found.start()].rstrip() if found else text


def repaired(source: str, text: str) -> str:
    """A translation without U+FFFD, which stands for a character that its tokens do not complete, unless its source has
    it. The signs of the source that the translation lacks replace it, if there are as many."""
    lost = _LOST.findall(text)
    if not lost or "\ufffd" in source:
        return text
    known = {*text}
    lacked = [
        sign for sign in source if not sign.isascii() and unicodedata.category(sign)[0] in "PS" and sign not in known
    ]
    signs = iter(lacked if len(lacked) == len(lost) else [])
    return _LOST.sub(lambda _: next(signs, ""), text)


@dataclass(frozen=True)
class SurfaceChange:
    """How a translation is changed: it is cut, and something is added."""

    keep: int
    """Characters to keep."""
    added: str = ""
    """What follows them."""
    is_upper: bool = False
    """Whether it is written in capitals."""
    first: str = ""
    """Its first letter, if that is another one."""
    names: tuple[str, ...] = ()
    """Words that keep their spelling in capitals, such as ``iPhone``."""

    def apply(self, text: str) -> str:
        """Change a text."""
        return self.capitals(self.initial(text[: self.keep]) + self.added)

    def capitals(self, text: str) -> str:
        """Write a text in capitals if it must be."""
        if not self.is_upper:
            return text
        names = {name.upper(): name for name in self.names}
        text = text.upper()
        return _LETTERS.sub(lambda match: names.get(match[0], match[0]), text) if names else text

    def initial(self, text: str) -> str:
        """Change the first letter of a text."""
        offset = len(text) - len(text.lstrip())
        return text[:offset] + self.first + text[offset + 1 :] if self.first else text


def mixed_words(text: str) -> tuple[str, ...]:
    """Words with capitals inside and small letters, such as ``iPhone``, ``McDonald`` and ``DVDs``."""
    return tuple(word for word in _LETTERS.findall(text) if _is_mixed(word))


def _is_mixed(word: str) -> bool:
    return any(map(str.isupper, word[1:])) and any(map(str.islower, word))


def in_capitals(text: str) -> bool:
    """Return whether all letters of a text but those of mixed words are capitals, and enough of them that it is not an
    acronym."""
    if sum(map(str.isupper, text)) < MIN_CAPITALS:
        return False
    text = _LETTERS.sub(lambda match: "" if _is_mixed(match[0]) else match[0], text)
    return text.isupper() and sum(map(str.isupper, text)) >= MIN_CAPITALS


def lowered(text: str) -> str:
    """Text in lowercase but for its first letter and mixed words; the text itself if capitals do not give it back."""
    small = _LETTERS.sub(lambda match: match[0] if _is_mixed(match[0]) else match[0].lower(), text)
    first = _LETTERS.search(small)
    if first is not None and not _is_mixed(first[0]):
        small = small[: first.start()] + small[first.start()].upper() + small[first.start() + 1 :]
    return small if len(small) == len(text) and small.upper() == text.upper() else text


def without_repeats(source: str, text: str, repeats: int) -> int:
    """The number of characters to keep of a text so that it does not end with copies of the same words, or consists of
    three or more.

    Args:
        source: the text that was translated; if it repeats itself as often, nothing is removed.
        text: the translation.
        repeats: number of copies that are too many.
    """
    if (whole := _COPIES.fullmatch(text.strip())) and not _REPEATED.fullmatch(_SEPARATORS.sub("", source)):
        return text.find(whole[1]) + len(whole[1])
    # A copy has at least two characters: numbers, dots and interjections repeat single ones.
    loop = re.compile(rf"(.{{2,80}}?)\1{{{repeats - 1},}}(?P<rest>.{{0,79}})$", re.DOTALL)
    offset = max(0, len(text) - _SEARCHED)
    found = loop.search(text, offset)
    if found is None or loop.search(source, max(0, len(source) - _SEARCHED)):
        return len(text)
    copy, rest = found[1], found["rest"].strip(" .!?,;")
    if not any(map(str.isalpha, copy)) or not copy.strip().startswith(rest):
        return len(text)
    return found.start() + len(copy.rstrip())


def surface_change(
    source: str, text: str, language: str, *, is_upper: bool, match: bool, repeats: int, has_added_period: bool = False
) -> SurfaceChange:
    """Decide how to change a translation so that its surface is that of its source.

    Args:
        source: the sentence.
        text: its translation.
        language: language code of the translation.
        is_upper: whether the sentence is in capitals.
        match: whether the first letter and final punctuation are to be those of the source.
        repeats: number of copies of the same words at the end that are too many; 0 allows all.
        has_added_period: whether the model read a period after the sentence.
    """
    keep = without_repeats(source, text, repeats) if repeats else len(text)
    names = mixed_words(source) if is_upper else ()
    code = base_code(language)
    if not match or not text.strip():
        keep = _punctuation(source, text[:keep], code, has_added_period=True)[0] if has_added_period else keep
        return SurfaceChange(keep, is_upper=is_upper, names=names)
    keep, added = _punctuation(source, text[:keep].rstrip(), code, has_added_period=has_added_period)
    keep = len(text[:keep].rstrip())
    return SurfaceChange(keep, added, is_upper, _first_letter(source, text), names)


def _punctuation(source: str, text: str, code: str, *, has_added_period: bool) -> tuple[int, str]:
    """How many characters of a translation to keep, and the punctuation to add."""
    wanted, found = _FINAL.search(source), _FINAL.search(text)
    is_period = found is not None and len(found[0]) == 1 and _uniform(found[0]) == "."
    ellipsis = _ELLIPSIS.match(wanted[0]) if wanted else None
    clause = source[-1:] if source.endswith((",", ";", ":")) and not wanted else ""
    # As in "hello", which becomes "Hello?"; a sentence may have no space in some scripts.
    is_word = not re.search(rf"[\s{UNSPACED}]", source.strip())
    is_surplus = not _UNMARKED.search(source) and (is_period or is_word or has_added_period)
    if found and not wanted and is_surplus and not _ABBREVIATION.search(text):
        return len(text[: found.start()].rstrip()), clause
    if ellipsis and found and is_period:
        return len(text[: found.start()].rstrip()), ellipsis[0]
    if wanted and not found and _ends_with_word(text):
        terminator = ellipsis[0] if ellipsis else _uniform(wanted[0][0])
        return len(text), _TERMINATORS.get(code, {}).get(terminator, terminator)
    return len(text), clause if _ends_with_word(text) else ""


def _uniform(terminator: str) -> str:
    """The terminator of English that one of any script stands for."""
    if terminator in _QUESTIONS:
        return "?"
    return "!" if terminator in _EXCLAMATIONS else "…" if terminator == "…" else "."


def _first_letter(source: str, text: str) -> str:
    """The first letter of a translation as a capital if its source begins with one; empty if it stays. A lower-case
    source says nothing: the first word may be one that the target language capitalizes."""
    words = _LETTERS.findall(source)
    if words and _is_mixed(words[0]) and words[0][0].islower():
        return ""  # "iPhone" begins a sentence as it is
    new, following = text.lstrip()[:1], text.lstrip()[1:2]
    capital = new.title()  # no capital in Georgian, which has them for whole words only
    is_raised = source.lstrip()[:1].isupper() and new.islower() and not following.isupper()
    return capital if is_raised and len(capital) == 1 else ""
