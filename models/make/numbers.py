"""Numbers in digits, replaced by others of the same form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from babel import Locale

from edgeformer.data.text import Pair
from edgeformer_text.protected import protected_spans
from models.make.names import Spans, substituted

_SPACES = "\u202f\u00a0"
_CODE = r"\(?\+?\d+\)?(?:(?:[-./:]|[ \u00a0\u202f](?=[\d(]))\(?\d+\)?){2,}|\d{3,}-\d{3,}"
"""Phone numbers, versions, dates in digits: groups with separators."""
_TIME = r"(?P<hour>[01]?\d|2[0-3])(?P<colon>:|\s?h\s?)(?P<minute>[0-5]\d)(?P<half>\s?[ap]\.?m\b)?"
_UNIT = r"(?:k?m|cm|mm|k?g|mg|km/h|kW|[KMGT]B|[kKMGT]o|p[xt]|ms|min|h)\b"
_ORDINAL = {"en": r"st|nd|rd|th", "fr": r"i?[eè]mes?|es?"}
"""Endings after the digits of an ordinal number above 1."""
_BEFORE_AMOUNT = re.compile(r"(?:[$€£¥]|\b(?:EUR|USD))\s?$")
_AFTER_AMOUNT = re.compile(
    r"\s?(?:[€£$¥]|(?:dollars|euros|pounds|livres|kilomet(?:er|re)s|kilomètres|miles|met(?:er|re)s|mètres|yens?)\b)"
)
"""Currencies and units beside a price or a measure, which may have decimals and groups of thousands."""


class Number(NamedTuple):
    """A number in a text."""

    begin: int
    end: int
    kind: str
    """``code``, ``time``, ``number`` or, if it cannot be replaced, ``other``."""
    value: tuple[str, ...]
    """Digits that its translation has too: the groups of a code, hour and minute of a day, integer and decimals."""
    mark: str = ""
    """Separator of hours and minutes or of groups of thousands, or ending of an ordinal number."""
    half: str = ""
    """The half of the day, such as " p.m"."""


class NumberReplacer:
    """Finds and replaces numbers.

    Args:
        languages: BCP 47 tags of source and target.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        self._formats = [_Format(language) for language in languages]

    def of_both(self, pair: Pair) -> tuple[list[Number], list[Number]]:
        """Return the numbers of each side."""
        return self._formats[0].numbers(pair[0]), self._formats[1].numbers(pair[1])

    def find(self, pair: Pair) -> list[tuple[Number, Number]]:
        """Return the numbers of both sides, in the order of the source; empty unless they correspond one to one."""
        source, target = self.of_both(pair)
        of_target = {number.value: number for number in target}
        values = {number.value for number in source}
        if not len(values) == len(source) == len(target) or values != of_target.keys():
            return []
        return [(number, of_target[number.value]) for number in source if _is_replaceable(number)]

    def replaced(self, pair: Pair, random: Random) -> Pair | None:
        """Replace every number except 0 and 1, on which grammar depends."""
        found = self.find(pair)
        if not found:
            return None
        values, new = set(), []
        for number, other in found:
            value, is_grouped = self._new_value(pair[0], number, random)
            values.add(value)
            first, second = self._formats
            new.append((first.written(number, value, is_grouped), second.written(other, value, is_grouped)))
        return substituted(pair, [_spans(numbers) for numbers in found], new) if len(values) == len(found) else None

    def spans(self, pair: Pair) -> list[Spans]:
        """Where the numbers are that may be replaced."""
        return [_spans(numbers) for numbers in self.find(pair)]

    def _new_value(self, text: str, number: Number, random: Random) -> tuple[tuple[str, ...], bool]:
        """A value of the same form, and whether its thousands are grouped."""
        if number.kind == "code":
            return tuple(_digits(group, random) for group in number.value), False
        if number.kind == "time":
            low, high = (2, 11) if int(number.value[0]) <= 12 else (14, 23)
            return (str(random.randint(low, high)), f"{random.randrange(60):02}"), False
        integer, decimals = number.value
        is_amount = _BEFORE_AMOUNT.search(text[: number.begin]) or _AFTER_AMOUNT.match(text, number.end)
        if is_amount and random.random() < 0.5:
            decimals = random.choice(("", _digits("0", random), f"{random.randrange(1, 100):02}"))
            return (str(random.randint(2, 10 ** random.randint(1, 7) + 2)), decimals), True
        return (_integer(integer, random), "".join(str(random.randrange(10)) for _ in decimals)), bool(number.mark)


class _Format:
    """How a language writes numbers."""

    def __init__(self, language: str) -> None:
        locale = Locale.parse(language, sep="-")
        symbols = locale.number_symbols.get("latn", locale.number_symbols)
        self.language, self.decimal, self.group = locale.language, symbols["decimal"], symbols["group"]
        group = f"[{_SPACES} .]" if self.group in _SPACES else re.escape(self.group)
        ordinal = _ORDINAL.get(self.language, "(?!)")
        integer = rf"(?P<integer>\d{{1,3}}(?:{group}\d{{3}})+(?![-/: ]?\d)|(?!{_CODE})\d+)"
        end = rf"(?:{re.escape(self.decimal)}(?P<decimals>\d+)|(?P<ordinal>{ordinal})\b)?"
        self._pattern = re.compile(
            rf"(?<![\w.,])(?:{_TIME}|{integer}{end}|(?P<code>{_CODE}))(?:(?!\w|[.,]\d)|(?={_UNIT}))|\w*\d\w*"
        )

    def numbers(self, text: str) -> list[Number]:
        """The numbers of a text, except inside what is not translated."""
        protected = list(protected_spans(text))
        return [
            number
            for number in self._all(text)
            if not any(begin < number.end and number.begin < end for begin, end in protected)
        ]

    def _all(self, text: str) -> Iterator[Number]:
        for match in self._pattern.finditer(text):
            span = match.span()
            if match["hour"]:
                half = match["half"] or ""
                hour = int(match["hour"]) % 12 + 12 * ("p" in half) if half else int(match["hour"])
                yield Number(*span, "time", (str(hour), match["minute"]), match["colon"], half)
            elif match["code"]:
                yield Number(*span, "code", tuple(re.findall(r"\d+", match[0])), match[0])
            elif match["integer"]:
                mark = match["ordinal"] or "".join(re.findall(r"\D", match["integer"])[:1])
                yield Number(*span, "number", (re.sub(r"\D", "", match["integer"]), match["decimals"] or ""), mark)
            else:
                yield Number(*span, "other", (match[0],))

    def written(self, number: Number, value: tuple[str, ...], is_grouped: bool) -> str:
        """A new value in place of a number."""
        if number.kind == "code":
            groups = iter(value)
            return re.sub(r"\d+", lambda _: next(groups), number.mark)
        if number.kind == "time":
            hour = (int(value[0]) - 1) % 12 + 1 if number.half else int(value[0])
            return f"{hour}{number.mark}{value[1]}{number.half}"
        integer, decimals = value
        if number.mark[:1].isalpha():
            return integer + (_english_ordinal(int(integer)) if self.language == "en" else number.mark)
        if is_grouped and len(integer) > 3:
            integer = f"{int(integer):,}".replace(",", number.mark or self.group)
        return integer + (self.decimal + decimals if decimals else "")


def _spans(numbers: tuple[Number, Number]) -> Spans:
    return (numbers[0].begin, numbers[0].end), (numbers[1].begin, numbers[1].end)


def _is_replaceable(number: Number) -> bool:
    return number.kind == "code" or (number.kind != "other" and int(number.value[0]) > 1)


def _english_ordinal(value: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(value % 10 if value % 100 not in (11, 12, 13) else 0, "th")


def _integer(old: str, random: Random) -> str:
    """An integer of at least 2 with as many digits; one that may be a day or a year stays one."""
    value = int(old)
    if old[0] == "0":
        return _digits(old, random)
    if value <= 31:
        return str(random.randint(2, 9) if value < 10 else random.randint(10, 31))
    if 1000 <= value < 2100:
        return str(random.randint(1000, 2099) if random.random() < 0.3 else random.randint(1900, 2050))
    return _digits(old, random)


def _digits(old: str, random: Random) -> str:
    """As many digits; the first one is 0 only if it was, and other digits follow it."""
    first = "0" if old[0] == "0" and len(old) > 1 else str(random.randint(1, 9))
    return first + "".join(str(random.randrange(10)) for _ in old[1:])
