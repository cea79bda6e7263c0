"""What distinguishes a sentence on its surface only: capitals and final punctuation, and loops of the model."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FINAL = re.compile(r"[.!?。！？…।؟]+[\"'”’»)\]]*$")
_ELLIPSIS = re.compile(r"\.{3,}|…+")
_MARKS = {
    "ar": {"?": "؟"},
    "bn": {".": "।"},
    "el": {"?": ";"},
    "fa": {"?": "؟"},
    "fr": {"?": "\u00a0?", "!": "\u00a0!"},
    "hi": {".": "।"},
    "ja": {".": "。", "?": "？", "!": "！"},
    "ur": {".": "۔", "?": "؟"},
    "zh": {".": "。", "?": "？", "!": "！"},
}
"""Final punctuation where it differs from that of English."""
_NOUNS_IN_CAPITALS = ("de", "deu", "lb", "ltz")
"""Languages in which the first letter depends on the word."""
_UNIFORM = {"。": ".", "！": "!", "？": "?", "।": ".", "؟": "?", "۔": "."}
_COPIES = re.compile(r"(\w[^\n]{0,80}?)(?:[\s,]+\1){2,}[.!?,]*", re.IGNORECASE)
_SEPARATORS = re.compile(r"[\s,]+")
_REPEATED = re.compile(r"(.{1,80}?)\1{2,}[.!?]*", re.IGNORECASE)
"""Text without separators that consists of copies."""
_ABBREVIATION = re.compile(r"(?:\w\.\w?|\betc|\bvs|\bNr|\bno|\bSt|\bMr|\bDr|\bCo|\bInc|\bLtd)\.$", re.IGNORECASE)
_SEARCHED = 2000
"""Characters at the end of a text in which copies are searched for."""
_LETTERS = re.compile(r"[^\W\d_]+")
MIN_CAPITALS = 6
"""Text with fewer letters may be an acronym."""


_ENDS = re.compile(r"[^\W_][\"'”’»)\]]*$")
"""The end of a sentence without final punctuation."""


def period(language: str) -> str:
    """The period of a language."""
    return _MARKS.get(re.split("[-_]", language)[0], {}).get(".", ".")


def lacks_period(text: str) -> bool:
    """Return whether a sentence ends with a word or number."""
    return _ENDS.search(text[-8:]) is not None


def without_final_punctuation(text: str) -> str:
    """A sentence without the punctuation at its end, and the spaces before that."""
    found = _FINAL.search(text)
    return text[: found.start()].rstrip() if found else text


@dataclass(frozen=True)
class Finish:
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


def finish(
    source: str, text: str, language: str, *, is_upper: bool, match: bool, repeats: int, is_marked: bool = False
) -> Finish:
    """Decide how to change a translation so that its surface is that of its source.

    Args:
        source: the sentence.
        text: its translation.
        language: language code of the translation.
        is_upper: whether the sentence is in capitals.
        match: whether the first letter and final punctuation are to be those of the source.
        repeats: number of copies of the same words at the end that are too many; 0 allows all.
        is_marked: whether the model read a period after the sentence.
    """
    keep = without_repeats(source, text, repeats) if repeats else len(text)
    names = mixed_words(source) if is_upper else ()
    code = re.split("[-_]", language)[0]
    if not match or not text.strip():
        keep = _punctuation(source, text[:keep], code, is_marked=True)[0] if is_marked else keep
        return Finish(keep, is_upper=is_upper, names=names)
    keep, added = _punctuation(source, text[:keep].rstrip(), code, is_marked=is_marked)
    keep = len(text[:keep].rstrip())
    return Finish(keep, added, is_upper, _first_letter(source, text, code), names)


def _punctuation(source: str, text: str, code: str, *, is_marked: bool) -> tuple[int, str]:
    """How many characters of a translation to keep, and the punctuation to add."""
    wanted, found = _FINAL.search(source), _FINAL.search(text)
    is_abbreviation = _ABBREVIATION.search(text) is not None
    is_period = found is not None and found[0] in (".", "。", "।")
    ellipsis = _ELLIPSIS.match(wanted[0]) if wanted else None
    clause = source[-1:] if source.endswith((",", ";", ":")) else ""
    is_word = not any(map(str.isspace, source.strip()))  # as in "hello", which becomes "Hello?"
    if found and not wanted and (is_period or is_word or is_marked) and not is_abbreviation:
        return len(text[: found.start()].rstrip()), clause
    if ellipsis and found and is_period:
        return len(text[: found.start()].rstrip()), ellipsis[0]
    if wanted and not found and text[-1:].isalnum():
        mark = ellipsis[0] if ellipsis else _UNIFORM.get(wanted[0][0], wanted[0][0])
        return len(text), _MARKS.get(code, {}).get(mark, mark)
    return len(text), clause if text[-1:].isalnum() else ""


def _first_letter(source: str, text: str, code: str) -> str:
    """The first letter of a translation in the case of its source's; empty if it is right or depends on the word."""
    words = _LETTERS.findall(source)
    first = _LETTERS.search(text)
    if words and _is_mixed(words[0]) and words[0][0].islower():
        return ""  # "iPhone" begins a sentence as it does any other place
    old, new, following = source.lstrip()[:1], text.lstrip()[:1], text.lstrip()[1:2]
    if old.isupper() and new.islower() and not following.isupper():
        return new.upper() if len(new.upper()) == 1 else ""
    is_capitalized = new.isupper() and (following.islower() or following in ("'", "’", " ")) and new != "I"
    is_name = first is not None and (first[0] in words or _is_mixed(first[0]))
    if old.islower() and is_capitalized and not is_name and code not in _NOUNS_IN_CAPITALS:
        return new.lower() if len(new.lower()) == 1 else ""
    return ""
