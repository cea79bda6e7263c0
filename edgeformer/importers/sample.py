"""Text for models that come without: names and dates of Unicode's Common Locale Data Repository, or, for models that
cannot read them, entries of their vocabularies."""

from __future__ import annotations

import random
from datetime import date, timedelta
from itertools import chain, zip_longest
from pathlib import Path

from babel import Locale, UnknownLocaleError
from babel.dates import format_date

from edgeformer.data.text import read_lines
from edgeformer.errors import DataError
from edgeformer.run.folder import MAX_UNKNOWN
from edgeformer_runtime.tokenizers import Tokenizer

SENTENCES = 256
"""Sentences that an imported model translates, for calibration and examples."""
LONGEST = 20
"""Maximum number of vocabulary entries in a sentence made of them."""


def readable_text(tokenizer: Tokenizer, language: str) -> list[str]:
    """Text of a language that a model can read; always the same.

    It is :func:`sample_text` if the vocabulary has almost all of its tokens; otherwise, random entries of that.
    """
    lines = sample_text(language)
    if tokenizer.unknown_share(lines) <= MAX_UNKNOWN:
        return lines
    order, ids = random.Random(0), range(tokenizer.vocab_size)
    drawn = (tokenizer.decode(order.choices(ids, k=order.randint(1, LONGEST))) for _ in range(4 * SENTENCES))
    # Some entries, put side by side, are encoded as others, or not at all.
    known = sorted(filter(str.strip, drawn), key=lambda line: tokenizer.unknown_share([line]))
    return min(lines, known[:SENTENCES], key=tokenizer.unknown_share)


def sample_text(language: str, count: int = SENTENCES) -> list[str]:
    """Names of languages and countries, and dates; in English if the BCP 47 tag is not known. Always the same."""
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
    """Lines of a file that are not blank; none without a file. A missing file, or one without text, is a
    ``DataError``."""
    if path is None:
        return []
    if not path.exists():
        raise DataError(f"`{path}` does not exist; check the path of --text.")
    lines = [line for line in read_lines(path) if line.strip()]
    if not lines:
        raise DataError(f"`{path}` has no text.")
    return lines
