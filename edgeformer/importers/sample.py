"""Text in any language, for models that come without: names and dates of Unicode's Common Locale Data Repository."""

from __future__ import annotations

import random
from datetime import date, timedelta
from itertools import chain, zip_longest
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.dates import format_date

from edgeformer.data.text import read_lines
from edgeformer.errors import DataError

SENTENCES = 256
"""Sentences that an imported model translates, for calibration and examples."""


def sample_text(language: str, count: int = SENTENCES) -> list[str]:
    """Names of languages and countries, and dates; always the same.

    Args:
        language: BCP 47 tag; English, if it is empty or unknown.
        count: number of lines, at most.
    """
    try:
        locale = Locale.parse(language.replace("-", "_") or "en")
    except (UnknownLocaleError, ValueError):
        locale = Locale("en")
    order = random.Random(0)
    names = sorted({*locale.territories.values(), *locale.languages.values()})
    order.shuffle(names)
    days = [date(2000, 1, 1) + timedelta(days=order.randrange(12_000)) for _ in range(count // 2)]
    dates = [format_date(day, "full", locale) for day in days]
    mixed = chain.from_iterable(zip_longest(dates, names[: count // 2]))
    return [line for line in mixed if line][:count]


def own_text(path: Path | None) -> list[str]:
    """Lines of a file that are not blank; none without a file. If it has no text, that is a ``DataError``."""
    lines = [line for line in read_lines(path) if line.strip()] if path is not None else []
    if path is not None and not lines:
        raise DataError(f"`{path}` has no text.")
    return lines
