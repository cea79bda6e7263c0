"""Translations of whole texts."""

from __future__ import annotations

from dataclasses import dataclass

from edgeformer_runtime.translator import Translation, shown


@dataclass(frozen=True)
class TranslatedWord:
    """A word or punctuation mark of a translation."""

    text: str
    probability: float | None
    """Geometric mean of its tokens' probabilities; ``None`` for what the model did not write."""
    source_span: tuple[int, int] | None
    """Characters of the source word that it attends to most, counted from the first of the sentence; ``None`` if it
    attends to none. Without attention, this is the source word at the same place."""
    target_span: tuple[int, int]
    """Its characters in the text's translation, counted from the first of the sentence's."""


@dataclass(frozen=True)
class SentenceTranslation:
    """A sentence of a text, and its translation."""

    source_span: tuple[int, int]
    """Its characters in the source text: the first, and the one after the last."""
    target_span: tuple[int, int]
    """The characters of its translation in the text's translation."""
    translation: Translation | None
    """What the model wrote; ``None`` if the sentence was copied."""
    confidence: float | None = None
    """Geometric mean of the probabilities of the translation's tokens, end token included; ``None`` if it was copied,
    or if token scores were not requested."""
    words: tuple[TranslatedWord, ...] = ()
    """Words of the translation, if they were requested."""
    is_doubtful: bool = False
    """Whether the confidence is so low that the translation may well be wrong."""


@dataclass(frozen=True)
class TextTranslation:
    """The translation of a text."""

    text: str
    """The translation, with the white space, lists and markup of the source."""
    sentences: tuple[SentenceTranslation, ...]
    """Sentences in their order; not those of attributes of HTML."""

    def __repr__(self) -> str:
        return f"TextTranslation({shown(self.text)}, {len(self.sentences):,} sentences)"
