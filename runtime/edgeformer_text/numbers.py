"""Whether a translation has the numbers of its sentence.

What a number is in any language, step by step:

1. A digit is a decimal digit of any script and counts by its value: ``3``, ``３`` and ``٣`` are the same.
2. Digits side by side are a group. Groups of thousands are one group, whatever is between them: ``1,250``, ``1.250``
   and ``1 250`` are ``1250``. A zero before a single digit does not count, nor do the minutes of a full hour.
3. What else is between groups is the language's affair, as is their order: ``12.5`` and ``12,5`` are the groups ``12``
   and ``5``, and a date has the same three in any order. So do times, versions, scores, ranges and phone numbers.
4. Other spellings may stand for a group, but are not required themselves: words and ordinals (``three``, ``third``),
   Roman numerals (``XIV``), numerals that are not decimal (``三``, ``½``, ``²``), the hour of the other clock (``15 h``
   for ``3 p.m.``), a decade without its century, the number of a month (``3月``).
5. A translation has the numbers of its source if each side has every group of the other as often, or what may stand for
   it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from edgeformer_text.alignment import AlignedSentence, put_over
from edgeformer_text.block import Block, Item, Span, without_items
from edgeformer_text.lexicon import LEXICON, base_code

_NUMBERS = LEXICON["numbers"]
SPACE: str = _NUMBERS["space"]
"""Spaces that do not end a line, inside numbers."""
FORMATS: dict[str, tuple[str, str]] = {
    code: (group, decimal) for group, decimal, codes in _NUMBERS["formats"] for code in codes.split()
}
"""Separators of thousands and of decimals by language, from Unicode's CLDR."""
TIME = re.compile(_NUMBERS["time"])
"""A time of day, or an hour."""
_ORDINALS: dict[str, str] = _NUMBERS["ordinals"]
"""What follows the digits of an ordinal number above 1."""
_BEFORE_AMOUNT, _AFTER_AMOUNT = re.compile(_NUMBERS["before_amount"]), re.compile(_NUMBERS["after_amount"])
_ORDINAL = re.compile(_NUMBERS["ordinal"])
_VALUES = {
    code: {word: str(value) for value, forms in enumerate(words.split()) for word in forms.split(",")}
    for code, words in _NUMBERS["words"].items()
}
"""Numbers from 0 on that style guides write in words, cardinal and ordinal; no articles, which are everywhere."""
_NUMBER = [
    re.compile(rf"{_NUMBERS['clock']}|{_NUMBERS['phone']}(?![,\d])|{_NUMBERS['plain']}{thousands})*")
    for thousands in ("", r"| (?=\d{3}(?!\d))")
]
"""A number as it is written, with the letters and signs that belong to it, in languages that do not separate thousands
with spaces, and in those that do."""
_FULL_HOUR = re.compile(_NUMBERS["full_hour"])
_AREA = re.compile(_NUMBERS["area"])
"""A square or cubic unit, whose figure is an exponent."""
_THOUSANDS = [re.compile(_NUMBERS["thousands"].replace("{space}", space)) for space in (SPACE, f"{SPACE} ")]
"""Groups of thousands in languages that do not separate them with spaces, and in those that do."""
_MONTH, _MYRIADS = re.compile(_NUMBERS["month"]), re.compile(_NUMBERS["myriads"])
_DECADE = re.compile(_NUMBERS["decade"])
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ROMAN = re.compile(_NUMBERS["roman"])


class Number(NamedTuple):
    """A number of a text, as it is written."""

    start: int
    end: int
    groups: Counter[str]
    """Its groups of digits."""


@dataclass(frozen=True)
class NumberDifferences:
    """Groups of digits that are not the same in a sentence and its translation."""

    missing: Counter[str] = field(default_factory=Counter)
    """What the translation lacks."""
    surplus: Counter[str] = field(default_factory=Counter)
    """What it has beyond its source's."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.missing.total() + self.surplus.total()

    @property
    def groups(self) -> tuple[str, ...]:
        """All of them, each as often as it is wrong."""
        return (*self.missing.elements(), *self.surplus.elements())


def numbers(text: str, language: str) -> list[Number]:
    """Find the numbers of a text."""
    found = _NUMBER[_has_spaces(language)].finditer(ascii_digits(text))
    return [Number(*match.span(), _groups(match[0], language)) for match in found]


def differences(source: str, target: str, languages: tuple[str, str]) -> NumberDifferences:
    """Compare the numbers of a sentence with those of its translation. Without digits, a sentence has none that its
    translation could lack, and what words became is not judged."""
    if not any(map(str.isdecimal, source)):
        return NumberDifferences()
    source, target = ascii_digits(source), ascii_digits(target)
    if bool(_MYRIADS.search(source)) != bool(_MYRIADS.search(target)):
        return NumberDifferences()  # 1.5 million is 150万
    mine, theirs = _instead(source, languages[0]), _instead(target, languages[1])  # what is on both sides is neither
    found = []
    for is_joined in (True, False):
        own, other = (
            _groups(text, code, is_joined=is_joined) for text, code in zip((source, target), languages, strict=True)
        )
        missing, surplus = own - other, other - own
        found.append(NumberDifferences(missing - (theirs - mine), surplus - (mine - theirs)))
    return min(found, key=lambda found: found.count)


def _has_spaces(language: str) -> bool:
    """Return whether a language separates thousands with spaces, or is not known."""
    return FORMATS.get(base_code(language), " ")[0] in f" {SPACE}"


def _groups(text: str, language: str, *, is_joined: bool = True) -> Counter[str]:
    """The groups of digits that the other side must have."""
    text = _FULL_HOUR.sub(r"\1", _AREA.sub(r"\1", _MONTH.sub("", text)))
    if is_joined:
        text = _THOUSANDS[_has_spaces(language)].sub(lambda match: re.sub(r"\D", "", match[0]), text)
    return Counter(group[1:] if len(group) == 2 and group[0] == "0" else group for group in re.findall(r"\d+", text))


def _instead(text: str, language: str) -> Counter[str]:
    """The groups of digits that other spellings in a text may stand for."""
    return Counter(_stand_ins(text, base_code(language)))


def _stand_ins(text: str, code: str) -> Iterator[str]:
    values = _VALUES.get(code, {})
    for word in _WORD.findall(text.lower()):
        if word in values or word[:-1] in values:  # without the ending of a plural
            yield values.get(word) or values[word[:-1]]
    for numeral in _ROMAN.findall(text):
        yield str(_roman(numeral))
    for character in text:
        if not character.isascii() and (value := unicodedata.numeric(character, None)) is not None:
            yield from re.findall(r"\d+", unicodedata.normalize("NFKC", character)) or [f"{value:g}"]
    for match in TIME.finditer(text):
        hour = int(match["hour"])
        if match["half"]:
            yield str(hour % 12 + 12 * (match["half"] == "p"))
        elif 12 < hour <= 24:
            yield str(hour - 12)
        elif not hour:
            yield "12"
    for match in _MONTH.finditer(text):
        yield match[0].lstrip("0")
    for long, short in _DECADE.findall(text):
        decade = long or short
        yield from [decade[-2:]] if len(decade) > 2 else [f"19{decade}", f"20{decade}"]


def _roman(numeral: str) -> int:
    figures = [{"I": 1, "V": 5, "X": 10}[letter] for letter in numeral]
    return sum(-one if one < following else one for one, following in zip(figures, [*figures[1:], 0], strict=True))


def ascii_digits(text: str) -> str:
    """Text with the digits of ASCII in place of those of other scripts."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(each)) if each.isdecimal() else each for each in text)


def with_signs(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of a number and of the sign of a currency or unit beside it. One that has a sign is an amount,
    so that a point or comma in it separates decimals or thousands."""
    before, after = _BEFORE_AMOUNT.search(text[:start]), _AFTER_AMOUNT.match(text, end)
    return before.start() if before else start, after.end() if after else end


def adapted(text: str, languages: tuple[str, str], *, is_amount: bool) -> str:
    """Write a number as the target language does, as far as its meaning is certain: amounts, groups of thousands,
    clock times with the half of the day, and ordinal numbers.

    Args:
        text: the number, as the source has it.
        languages: language codes of source and target.
        is_amount: whether a single point or comma is certainly not part of a version, a chapter or the like.
    """
    text, (own, other) = ascii_digits(text), map(base_code, languages)
    if own == other:
        return text
    if (time := TIME.fullmatch(text)) and (time["half"] or "h" in text):
        return _time(time, text, other)
    if ordinal := _ORDINAL.fullmatch(text):
        return ordinal[1] + _ordinal(ordinal[1], other)
    if own not in FORMATS or other not in FORMATS:
        return text
    (group, decimal), (new_group, new_decimal) = FORMATS[own], FORMATS[other]
    groups = f"[ {SPACE}]" if group in SPACE else re.escape(group)
    number = re.fullmatch(rf"([-−+]?)(\d{{1,3}}(?:{groups}\d{{3}})+|\d+)(?:{re.escape(decimal)}(\d+))?", text)
    if number is None:
        return text
    sign, integer, decimals = number[1], re.sub(groups, "\0", number[2]), number[3]
    if decimals and decimal == "." and "\0" not in integer and not is_amount:
        return text  # perhaps a version or a chapter
    return sign + integer.replace("\0", new_group) + (new_decimal + decimals if decimals else "")


def _time(time: re.Match[str], text: str, language: str) -> str:
    if language == "en" and time["half"]:
        return text
    hour = int(time["hour"]) % 12 + 12 * (time["half"] == "p") if time["half"] else int(time["hour"])
    if language == "fr":
        return f"{hour}\u00a0h" + (f"\u00a0{time['minute']}" if time["minute"] else "")
    return f"{hour}:{time['minute'] or '00'}"


def _ordinal(digits: str, language: str) -> str:
    """What makes digits an ordinal number; nothing where that is not known."""
    if language == "en":
        last = int(digits) % 10 if int(digits) % 100 not in (11, 12, 13) else 0
        return {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return "er" if language == "fr" and digits == "1" else _ORDINALS.get(language, "")


def number_items(
    block: Block,
    span: Span,
    taken: Sequence[Item],
    wrong: Counter[str],
    languages: tuple[str, str],
    *,
    with_sign: bool,
) -> list[Item]:
    """Make items of numbers of a sentence, written as the target language does.

    Args:
        block: the block.
        span: characters of the sentence in it.
        taken: items that the sentence has already.
        wrong: groups of digits; items are made of the numbers that have one, or of all if none has.
        languages: language codes of source and target.
        with_sign: whether the sign of a currency or unit beside a number belongs to the item.
    """
    text, start = without_items(block.text, span, taken), span[0]
    found, items = numbers(text, languages[0]), []
    for number in [number for number in found if number.groups & wrong] or found:
        inner = number.start, number.end
        signed = with_signs(text, *inner)
        first, last = signed if with_sign else inner
        own = adapted(text[slice(*inner)], languages, is_amount=signed != inner)
        shown = text[first : number.start] + own + text[number.end : last]
        raw = "".join(block.raw[start + first : start + last]) if shown == text[first:last] else block.escape(shown)
        items.append(Item(start + first, start + last, shown, raw))
    return items


def corrected(
    sentence: AlignedSentence, numbers_lacked: Sequence[Item], surplus: Counter[str], taken: Sequence[Item], code: str
) -> AlignedSentence | None:
    """Put numbers that a translation lacks in place of the surplus ones that it has, outside items taken already.

    Returns:
        The translation; ``None`` if it is not certain which number stands for which.
    """
    text = target_without(sentence, taken)
    spans = [number[:2] for number in numbers(text, code) if number.groups & surplus]
    paired = _pairs(sentence, numbers_lacked, spans)
    for item, span in sorted(paired.items(), key=lambda pair: -pair[1][0]):
        sentence = put_over(sentence, item, item.text, *span)
    return sentence if paired else None


def target_without(sentence: AlignedSentence, items: Sequence[Item]) -> str:
    """The text of a translation, with spaces in place of items."""
    texts = {item.text.casefold() for item in items}
    shown = [
        " " * len(word.text) if word.is_item and word.text.casefold() in texts else word.text for word in sentence.words
    ]
    return "".join([word.space + text for word, text in zip(sentence.words, shown, strict=True)])


def _pairs(sentence: AlignedSentence, items: Sequence[Item], spans: Sequence[Span]) -> Mapping[Item, Span]:
    """Which item belongs to which span, if there are as many, and each span attends most to another item."""
    if not items or len(items) != len(spans):
        return {}
    words = [sentence.word_at(start) for start, _ in spans]
    attention = np.array([sentence.shares(item.start, item.end)[words] for item in items])  # (items, spans)
    best = {items[index]: span for index, span in zip(attention.round(6).argmax(0), spans, strict=True)}
    return best if len(best) == len(items) else {}
