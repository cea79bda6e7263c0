"""Codes of languages: BCP 47 tags, and what toolkits write instead."""

from __future__ import annotations

from collections.abc import Collection

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_TEXT

ALIASES = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Codes that Argos Translate's packages have, and what LibreTranslate writes instead."""
_FARTHEST = 5
"""Greatest distance between two codes of one language: between its regions, but not between scripts of Chinese, or
Norwegian Bokmål and Danish. See CLDR's language matching, https://unicode.org/reports/tr35/#LanguageMatching."""


def public_code(code: str) -> str:
    """The code that people see for a model's."""
    return ALIASES.get(code, code)


def matching_code(code: str, known: Collection[str]) -> str | None:
    """Return the code among ``known`` that means the same language: the code itself in any case, an alias, or the
    closest BCP 47 tag, as ``en`` is to ``en-US`` and ``deu_Latn`` to ``de``; ``None`` if there is none.

    Needs langcodes for tags that are not the same; without it, there is none.
    """
    meanings = {public_code(name).lower(): name for name in known} | {name.lower(): name for name in known}
    meanings = {alias: meanings[full.lower()] for alias, full in ALIASES.items() if full.lower() in meanings} | meanings
    if code.lower() in meanings or not code or len(code) > MAX_TEXT:
        return meanings.get(code.lower())
    try:
        from langcodes import closest_match, tag_is_valid  # only other codes need it
    except ModuleNotFoundError:
        return None
    tags = {tag.replace("_", "-"): name for tag, name in meanings.items()}
    tags = {tag: name for tag, name in tags.items() if tag_is_valid(tag)}
    tag = public_code(code).replace("_", "-")
    return tags.get(closest_match(tag, list(tags), _FARTHEST)[0]) if tag_is_valid(tag) else None


def chosen_code(option: str, code: str, known: Collection[str]) -> str:
    """Return the code of a language that a model has; the only one if none is given, or empty if it has several.

    Args:
        option: name of the option, for the error.
        code: a code that a caller gave, or empty.
        known: codes that the model has; if it has none, any will do.

    Raises:
        OptionError: the model does not have the language.
    """
    if not code:
        return next(iter(known)) if len(known) == 1 else ""
    found = matching_code(code, known) if known else code
    if found is None:
        raise OptionError(f"`{option}` must be one of {', '.join(sorted(known))}, but is `{code}`.")
    return found
