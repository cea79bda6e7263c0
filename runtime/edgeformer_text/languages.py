"""The language that a text is written in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

from edgeformer_runtime.errors import ConfigError, OptionError, missing_package
from edgeformer_text.block import Block
from edgeformer_text.lexicon import base_code
from edgeformer_text.protected import protected_items

_READ_CHARACTERS = 4096
"""Characters of a text that are read."""


class DetectedLanguage(NamedTuple):
    """A language, and how probable it is."""

    language: str
    """Language code, such as ``en``."""
    probability: float
    """From 0 to 1."""


def can_detect_languages() -> bool:
    """Whether py3langid is installed."""
    return find_spec("py3langid") is not None


def detect_languages(text: str, among: Collection[str] = ()) -> list[DetectedLanguage]:
    """Identify the language of a text, by py3langid, which knows 97 languages.

    URLs, e-mail addresses and placeholders are not read.

    Args:
        text: the text; short ones are often mistaken.
        among: codes of the languages it may be in; by default, all that are known.

    Returns:
        Languages, most probable first; none for a text without words.

    Raises:
        ConfigError: py3langid is not installed.
        OptionError: none of the languages is known.
    """
    text = text[:_READ_CHARACTERS]
    for item in reversed(protected_items(Block.plain(text))):
        text = f"{text[: item.start]} {text[item.end :]}"
    if not any(map(str.isalpha, text)):
        return []
    with _opening:
        identifier = _identifier()
    ranked: Sequence[tuple[str, float]] = identifier.rank(text)
    if not among:
        return [DetectedLanguage(language, float(probability)) for language, probability in ranked]
    codes = {base_code(code): code for code in among}
    kept = [(codes[language], float(probability)) for language, probability in ranked if language in codes]
    if not kept:
        raise OptionError(f"None of the languages {', '.join(sorted(among))} can be detected.")
    total = sum(probability for _, probability in kept) or 1.0
    return [DetectedLanguage(language, probability / total) for language, probability in kept]


_opening = Lock()
"""Lets threads that ask first at the same time open one model, which takes 100 MB meanwhile, instead of one each."""


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("Detecting languages", error.name, "detect")) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
