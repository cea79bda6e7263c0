"""Special tokens and language codes around the tokens of a text, by name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_AFFIX_TOKENS, MAX_LANGUAGES, MAX_TEXT, Text

SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"
"""Stand for the token of a language in :class:`TextFormat`."""
ALIASES = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Codes that Argos Translate's packages have, and what LibreTranslate writes instead."""
_FARTHEST = 5
"""Greatest distance between two codes of one language: between its regions, but not between scripts of Chinese, or
Norwegian Bokmål and Danish. See CLDR's language matching, https://unicode.org/reports/tr35/#LanguageMatching."""


Tokens = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_AFFIX_TOKENS)]


class TextFormat(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Names of special tokens in both vocabularies, and the tokens that a model expects around a text.

    In a prefix or suffix, ``{source_language}`` and ``{target_language}`` stand for the token of a language.
    """

    pad: Text = "<pad>"
    """Pads the shorter sources of a batch."""
    unk: Text = "<unk>"
    """Represents text that is not in the vocabulary."""
    bos: Text = "<s>"
    """The first token fed to the decoder."""
    eos: Text = "</s>"
    """Ends a target."""
    suppress: Tokens = ("<pad>", "<s>")
    """Tokens that are never generated and not part of the distribution."""
    forbid: Tokens = ()
    """Tokens that are never generated, although part of the distribution."""
    source_prefix: Tokens = ()
    """Tokens before a source."""
    source_suffix: Tokens = ("</s>",)
    """Tokens after a source."""
    target_prefix: Tokens = ()
    """Tokens that every target begins with, after the start token."""
    languages: Annotated[dict[Text, Text], msgspec.Meta(max_length=MAX_LANGUAGES)] = {}
    """Token of each language, by its code."""

    @property
    def special_tokens(self) -> tuple[str, str, str, str]:
        """Names of the padding, unknown, start and end tokens."""
        return self.pad, self.unk, self.bos, self.eos

    def between(self, source_language: str, target_language: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the codes of the languages that a model translates from and to: all that it has tokens for, where it
        takes or needs one, else its own. The sets are empty if the languages are not known.

        Args:
            source_language: the language that the model translates from by default, or empty.
            target_language: the language that it translates to by default, or empty.
        """
        own, affixes = frozenset(self.languages), {*self.source_prefix, *self.source_suffix, *self.target_prefix}
        pair = (SOURCE_LANGUAGE, source_language), (TARGET_LANGUAGE, target_language)
        sources, targets = (
            own if placeholder in affixes or (own and not code) else frozenset({code} - {""})
            for placeholder, code in pair
        )
        return sources, targets

    def chosen(self, own: tuple[str, str], given: tuple[str, str]) -> tuple[str, str]:
        """Return the codes of the languages that a caller means: the only ones, where none is given.

        Args:
            own: languages that the model translates between by default; see :meth:`between`.
            given: what the caller gives: codes, BCP 47 tags, or empty.

        Raises:
            OptionError: the model does not have one.
        """
        codes = []
        for name, code, known in zip(("source_language", "target_language"), given, self.between(*own), strict=True):
            codes.append(meant_code(code, known))
            if codes[-1] is None:
                raise OptionError(f"`{name}` must be one of {', '.join(sorted(known))}, but is `{code}`.")
        return codes[0] or "", codes[1] or ""

    def resolved(self, tokens: Sequence[str], source_language: str, target_language: str) -> tuple[str, ...]:
        """Replace the placeholders in a prefix or suffix by the tokens of languages.

        Raises:
            OptionError: a language is needed, but the model does not have it.
        """
        chosen = {SOURCE_LANGUAGE: source_language, TARGET_LANGUAGE: target_language}
        for placeholder, language in chosen.items():
            if placeholder in tokens and language not in self.languages:
                known = ", ".join(sorted(self.languages)) or "none"
                raise OptionError(f"`{placeholder[1:-1]}` must be one of {known}, but is `{language}`.")
        return tuple(self.languages[chosen[token]] if token in chosen else token for token in tokens)


def public_code(code: str) -> str:
    """The code that people see for a model's."""
    return ALIASES.get(code, code)


def meant_code(code: str, known: Collection[str]) -> str | None:
    """Return the code among ``known`` that a caller means, the only one if none is given; ``None`` if it has no such
    language. Any code may be meant if none is known."""
    if not code:
        return next(iter(known)) if len(known) == 1 else ""
    return matching_code(code, known) if known else code


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
