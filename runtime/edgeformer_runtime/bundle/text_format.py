"""What is around the tokens of a text: special tokens and language codes, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.limits import MAX_AFFIX_TOKENS, MAX_LANGUAGES, Text

SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"
"""Stand for the token of a language in :class:`TextFormat`."""


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
        takes or needs one, else its own; none if they are not known.

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
