"""What is around the tokens of a text: special tokens and language codes, by name."""

from __future__ import annotations

import msgspec

from edgeformer_runtime.limits import Text

SOURCE_LANGUAGE, TARGET_LANGUAGE = "{source_language}", "{target_language}"
"""Stand for the token of a language in :class:`TextFormat`."""


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
    suppress: tuple[Text, ...] = ("<pad>", "<s>")
    """Tokens that are never generated."""
    source_prefix: tuple[Text, ...] = ()
    """Tokens before a source."""
    source_suffix: tuple[Text, ...] = ("</s>",)
    """Tokens after a source."""
    target_prefix: tuple[Text, ...] = ()
    """Tokens that every target begins with, after the start token."""
    languages: dict[Text, Text] = {}
    """Token of each language, by its code."""
