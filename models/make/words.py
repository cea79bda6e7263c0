"""Words and short strings, in English and French.

Days, months, countries, languages, currencies, units, cities, dates and amounts as CLDR writes them, through Babel;
numbers in words; greetings and other set phrases.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from random import Random
from typing import Any

from babel import Locale
from babel.numbers import format_currency, format_decimal, get_currency_name
from babel.units import format_unit

from edgeformer.data.dates import generate_dates
from edgeformer.data.text import Pair

_ENGLISH, _FRENCH = Locale("en"), Locale("fr")
_DATES, _PER_SENTENCE = 6000, 50
_NUMBERS = (*range(201), *range(300, 1000, 100), *range(1000, 10_000, 1000))


def generate_words(*, seed: int = 1) -> list[Pair]:
    """Return distinct pairs in random order; the text depends on the seed and on Babel's release of CLDR."""
    random = Random(seed)
    numbers = [*_NUMBERS, *(random.randrange(200, 10 ** random.randint(3, 6)) for _ in range(600))]
    pairs = [
        *_table()["phrases"].items(),
        *_calendar(),
        *_names(),
        *_measures(),
        *((english_number(number), french_number(number)) for number in numbers),
        *_sentences(random),
        *generate_dates(size=_DATES, seed=seed),
    ]
    distinct = list(dict.fromkeys((english, _with_usual_symbols(french)) for english, french in pairs))
    random.shuffle(distinct)
    return distinct


def english_number(number: int) -> str:
    """Write an integer below a million in English words."""
    if number < 20:
        return _entries("small_en")[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _entries("tens_en")[tens - 2] + (f"-{english_number(ones)}" if ones else "")
    size, word = (100, "hundred") if number < 1000 else (1000, "thousand")
    most, rest = divmod(number, size)
    return f"{english_number(most)} {word}" + (f" {english_number(rest)}" if rest else "")


def french_number(number: int, *, is_last: bool = True) -> str:
    """Write an integer below a million in French words; "cents" and "quatre-vingts" only where nothing follows."""
    if number < 20:
        return _entries("small_fr")[number]
    if number < 100:
        tens = number // 10
        ones = number - 10 * (tens - (tens in (7, 9)))
        front = _entries("tens_fr")[tens - 2]
        if not ones:
            return front + ("s" if tens == 8 and is_last else "")
        return f"{front}{' et ' if ones in (1, 11) and tens < 8 else '-'}{french_number(ones)}"
    size, word = (100, "cent") if number < 1000 else (1000, "mille")
    most, rest = divmod(number, size)
    front = "" if most == 1 else french_number(most, is_last=False) + " "
    if rest:
        return f"{front}{word} {french_number(rest, is_last=is_last)}"
    return front + word + ("s" if size == 100 and front and is_last else "")


def _calendar() -> Iterator[Pair]:
    for kind in ("days", "months"):
        for width in ("wide", "abbreviated"):
            english, french = (getattr(locale, kind)["stand-alone"][width] for locale in (_ENGLISH, _FRENCH))
            yield from ((english[key], french[key]) for key in english)
    days, french_days = (locale.days["format"]["wide"] for locale in (_ENGLISH, _FRENCH))
    for key, day in days.items():
        french_day = french_days[key]
        yield from (
            (f"on {day}", french_day),
            (f"on {day}s", f"le {french_day}"),
            (f"next {day}", f"{french_day} prochain"),
            (f"last {day}", f"{french_day} dernier"),
            (f"every {day}", f"tous les {french_day}s"),
            (f"{day} morning", f"{french_day} matin"),
            (f"{day} evening", f"{french_day} soir"),
        )
    for key, month in _ENGLISH.months["format"]["wide"].items():
        yield f"in {month}", f"en {_FRENCH.months['format']['wide'][key]}"


def _names() -> Iterator[Pair]:
    yield from _shared(_ENGLISH.territories, _FRENCH.territories, filter(str.isalpha, _ENGLISH.territories))
    yield from _shared(_ENGLISH.languages, _FRENCH.languages, filter(str.isalpha, _ENGLISH.languages))
    yield from _shared(_ENGLISH.currencies, _FRENCH.currencies, _entries("currencies"))
    countries = set(_ENGLISH.territories.values())
    for zone, names in _FRENCH.time_zones.items():
        french = names.get("city", "")
        english = _ENGLISH.time_zones.get(zone, {}).get("city") or zone.rpartition("/")[2].replace("_", " ")
        if french and english not in countries and not zone.startswith("Etc/") and not set("([") & set(french):
            yield english, french


def _shared(english: Mapping[str, str], french: Mapping[str, str], keys: Iterable[str]) -> Iterator[Pair]:
    return ((english[key], french[key]) for key in keys if key in french)


def _measures() -> Iterator[Pair]:
    for unit in _entries("units"):
        for number in (1, 2, 5, 10, 100):
            yield format_unit(number, unit, locale=_ENGLISH), format_unit(number, unit, locale=_FRENCH)
    for code in _entries("currencies"):
        for number in (1, 10):
            english, french = (get_currency_name(code, number, locale) for locale in (_ENGLISH, _FRENCH))
            yield f"{number} {english}", f"{number} {french}"


def _sentences(random: Random) -> Iterator[Pair]:
    """Sentences and labels with numbers."""
    for english, french in _table()["amounts"].items():
        for _ in range(_PER_SENTENCE):
            amount, code = random.randrange(200, 10 ** random.randint(3, 7)) / 100, random.choice(("EUR", "USD", "GBP"))
            in_both = (format_currency(amount, code, locale=locale) for locale in (_ENGLISH, _FRENCH))
            yield english.format(next(in_both)), french.format(next(in_both))
    for english, french in _table()["codes"].items():
        for _ in range(_PER_SENTENCE):
            sizes = random.choices((2, 3, 4), k=random.randint(2, 4))
            code = random.choice(("-", " ", ".", "")).join(
                str(random.randrange(10**size)).zfill(size) for size in sizes
            )
            yield english.format(code), french.format(code)
    for english, french in _table()["integers"].items():
        for _ in range(_PER_SENTENCE):
            number = random.randint(2, 10 ** random.randint(1, 6))
            in_both = (format_decimal(number, locale=locale) for locale in (_ENGLISH, _FRENCH))
            yield english.format(next(in_both)), french.format(next(in_both))


def _with_usual_symbols(french: str) -> str:
    """French text with the symbols of dollars and pounds that people write."""
    return french.replace("$US", "$").replace("£GB", "£")


def _entries(name: str) -> list[str]:
    return str(_table()[name]).split()


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "words.toml").read_text(encoding="utf-8"))
