"""Codes of languages: those of a model, and the BCP 47 tags that users write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from langcodes import Language, standardize_tag, tag_is_valid

from edgeformer.errors import ConfigError
from edgeformer_runtime.bundle.text_format import public_code

_CODE = re.compile(r"[A-Za-z]{2,3}(?:[_-][A-Za-z]{4})?(?:[_-]([A-Za-z]{2}|[0-9]{3}))?")
MARIAN = re.compile(r">>([^<>\s]+)<<")
"""Token of a target language before a source, in OPUS-MT's models with several."""
M2M, NLLB, MBART, MADLAD = map(
    re.compile,
    (r"__([a-z]{2,3}(?:_[A-Za-z]+)?)__", r"([a-z]{3}_[A-Z][a-z]{3})", r"([a-z]{2,3}_[A-Z]{2})", r"<2(.+)>"),
)
"""Tokens of languages in models for many, with the code as a group."""
_NO_REGION = "XX"
"""Region of mBART's languages without one."""


def codes(names: Iterable[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Tokens of languages by their code, which is the group of the pattern."""
    return {match[1]: name for name in names if (match := pattern.fullmatch(name))}


def with_tags(tokens: Mapping[str, str]) -> dict[str, str]:
    """Add BCP 47 tags to the codes of a model, which have tokens: ``fr`` for ``fra``, ``fr_XX`` or ``fra_Latn``.

    A code of the model keeps its meaning, and so does what it begins with: ``twi`` is ``twi_Latn``, though its tag is
    that of ``aka_Latn``, too. Otherwise, a tag that stands for two of them stands for the first.
    """
    meant = {code: code for code in tokens}
    starts = {code: re.split("[_-]", code.lower())[0] for code in tokens}
    for code, start in starts.items():
        for name in tags(code):
            if name == start or name not in starts.values():
                meant.setdefault(name, code)
    for code, start in starts.items():
        found = next((meant[name] for name in tags(start) if name in meant), "")
        if tags(start) and starts.get(found) != start:
            meant.setdefault(start, code)
    return {name: tokens[code] for name, code in meant.items()}


def tags(code: str) -> list[str]:
    """BCP 47 tags of a code, the most precise first; empty if it is not the code of a language."""
    match = _CODE.fullmatch(code)
    if match is None:
        return []
    stated = Language.get(standardize_tag(code, macro=True))
    language, script = stated.language, stated.script
    region = None if (match[1] or "").upper() == _NO_REGION else stated.territory
    likely = Language.make(language, territory=region).maximize().script
    if script == ("Hang" if likely == "Kore" else likely):  # CLDR has Korean's Hangul as a part of Kore
        script = None
    forms = (Language.make(language, script=script, territory=part) for part in (region, None))
    return list(dict.fromkeys(form.to_tag() for form in forms))


def single_tag(code: object) -> str:
    """BCP 47 tag of the code of one language; empty if it is none, such as ``mul``."""
    found = tags(code) if isinstance(code, str) and code not in {"mul", "ine", "roa"} else []
    return found[-1] if found else ""


def stated_tag(language: str) -> str:
    """The BCP 47 tag of a language that a user states, such as ``en-US`` for ``en_us`` and ``fr`` for ``fra``.

    Raises:
        ConfigError: it is not a language.
    """
    tag = public_code(language).replace("_", "-")
    if language and not tag_is_valid(tag):
        raise ConfigError(f"`{language}` is not a language; give a BCP 47 tag, such as en or pt-BR.")
    return standardize_tag(tag) if language else ""
