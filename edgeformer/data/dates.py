"""The corpus ``dates-en-fr``: dates, times, numbers and units as CLDR writes them in English and French.

Real parallel text without a download: the Unicode Common Locale Data Repository, through Babel. French keeps CLDR's
typography, with U+202F and U+00A0 as its two no-break spaces. Every source has exactly one target, and the target can
always be derived from the source: two-digit years are left out, since French writes four digits.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

from babel import Locale
from babel.dates import (
    TIMEDELTA_UNITS,
    format_date,
    format_datetime,
    format_skeleton,
    format_time,
    format_timedelta,
)
from babel.numbers import format_compact_decimal, format_currency, format_decimal, format_percent
from babel.units import format_unit

from edgeformer.data.text import Pair
from edgeformer.errors import DataError

_SOURCE, _TARGET = Locale("en"), Locale("fr")
_FIRST_DAY = date(1900, 1, 1).toordinal()
_LAST_DAY = date(2099, 12, 31).toordinal()

# The French form can be derived from the English one. Skeletons on a 12-hour clock would contradict `_time`.
_DATE_SKELETONS = (
    "yMd",
    "yMEd",
    "yMMMEd",
    "yM",
    "yMMM",
    "yMMMM",
    "yQQQ",
    "yQQQQ",
    "MMMd",
    "MMMMd",
    "MMMEd",
    "MEd",
    "Md",
)
_TIME_SKELETONS = ("Hm", "Hms", "EHm", "EHms")
_CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "CAD", "AUD", "INR", "BRL", "CNY", "MXN", "SEK", "NOK", "PLN")
_UNITS = (
    "length-kilometer",
    "length-meter",
    "length-centimeter",
    "length-millimeter",
    "length-mile",
    "length-foot",
    "length-inch",
    "mass-kilogram",
    "mass-gram",
    "mass-pound",
    "volume-liter",
    "volume-milliliter",
    "area-square-meter",
    "area-hectare",
    "temperature-celsius",
    "temperature-fahrenheit",
    "speed-kilometer-per-hour",
    "speed-mile-per-hour",
    "energy-kilowatt-hour",
    "power-watt",
    "digital-megabyte",
    "digital-gigabyte",
    "duration-year",
    "duration-month",
    "duration-week",
    "duration-day",
    "duration-hour",
    "duration-minute",
    "duration-second",
    "frequency-hertz",
)
_TIMEDELTA_SECONDS = dict(TIMEDELTA_UNITS)

Maker = Callable[[Random], Pair]


def generate_dates(*, size: int = 60_000, seed: int = 1) -> list[Pair]:
    """Draw distinct pairs in random order.

    The text depends on the arguments and on Babel's release of CLDR.

    Raises:
        DataError: there are fewer than ``size`` distinct pairs.
    """
    random = Random(seed)
    makers = list(MAKERS)
    drawn = random.choices(makers, weights=[MAKERS[maker] for maker in makers], k=4 * size)
    targets: dict[str, str] = {}
    ambiguous: set[str] = set()
    for maker in drawn:
        source, target = maker(random)
        if source in ambiguous:
            continue
        if targets.setdefault(source, target) != target:
            del targets[source]
            ambiguous.add(source)
        elif len(targets) == size:
            return list(targets.items())
    raise DataError(f"`dates-en-fr` has fewer than {size:,} distinct pairs; request fewer.")


def _both(formatter: Callable[..., str], *args: Any, **options: Any) -> Pair:
    """Format a value in both languages."""
    return formatter(*args, locale=_SOURCE, **options), formatter(*args, locale=_TARGET, **options)


def _moment(random: Random) -> datetime:
    day = date.fromordinal(random.randint(_FIRST_DAY, _LAST_DAY))
    return datetime(day.year, day.month, day.day, random.randrange(24), random.randrange(60), random.randrange(60))


def _date(random: Random) -> Pair:
    return _both(format_date, _moment(random).date(), random.choice(("medium", "long", "full")))


def _partial_date(random: Random) -> Pair:
    return _both(format_skeleton, random.choice(_DATE_SKELETONS), _moment(random))


def _time(random: Random) -> Pair:
    return _both(format_time, _moment(random).time(), random.choice(("short", "medium")))


def _clock(random: Random) -> Pair:
    return _both(format_skeleton, random.choice(_TIME_SKELETONS), _moment(random))


def _date_and_time(random: Random) -> Pair:
    return _both(format_datetime, _moment(random), "medium")


def _amount(random: Random) -> int:
    """A number of one to six digits, every length equally likely."""
    return random.randrange(10 ** random.randint(1, 6))


def _number(random: Random) -> Pair:
    number = _amount(random) / 10 ** random.choice((0, 0, 1, 2, 3))
    return _both(format_decimal, -number if number and random.random() < 0.1 else number)


def _compact_number(random: Random) -> Pair:
    thousands = random.choice((10**3, 10**6, 10**9))
    tenths = random.randint(10, 99) if random.random() < 0.5 else 10 * random.randint(1, 999)
    return _both(format_compact_decimal, tenths * thousands // 10, format_type="long", fraction_digits=1)


def _percentage(random: Random) -> Pair:
    return _both(format_percent, random.randrange(10**4) / 10 ** random.choice((2, 3, 4)), decimal_quantization=False)


def _money(random: Random) -> Pair:
    currency = random.choice(_CURRENCIES)
    amount = _amount(random) / (1 if currency == "JPY" else random.choice((1, 100)))  # yen have no cents
    return _both(format_currency, amount, currency, format_type=random.choice(("standard", "name")))


def _measure(random: Random) -> Pair:
    number = random.randrange(10 ** random.randint(1, 4)) / random.choice((1, 1, 10))
    unit = random.choice(_UNITS)
    return _unlike_long(random, lambda length: _both(format_unit, number, unit, length=length))


def _relative_time(random: Random) -> Pair:
    unit = random.choice(list(_TIMEDELTA_SECONDS))
    delta = timedelta(seconds=random.choice((-1, 1)) * random.randint(1, 200) * _TIMEDELTA_SECONDS[unit])
    options = {"granularity": unit, "threshold": float("inf"), "add_direction": True}
    return _unlike_long(random, lambda length: _both(format_timedelta, delta, format=length, **options))


def _unlike_long(random: Random, make: Callable[[str], Pair]) -> Pair:
    """The long form, or the short form where they differ in English ("3 days" is both, but French has two forms)."""
    long, short = make("long"), make("short")
    return random.choice((long, short)) if short[0] != long[0] else long


MAKERS: dict[Maker, int] = {
    _date: 20,
    _partial_date: 10,
    _time: 8,
    _clock: 8,
    _date_and_time: 14,
    _number: 8,
    _compact_number: 2,
    _percentage: 3,
    _money: 10,
    _measure: 10,
    _relative_time: 4,
}
"""Relative frequency of each kind; a small kind is soon exhausted, since pairs are distinct."""
