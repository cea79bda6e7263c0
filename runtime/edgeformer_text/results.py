"""Translations of whole texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edgeformer_runtime.translation import TextHypothesis, Translation, shown

MIN_RELATIVE_CONFIDENCE = 0.6
"""Confidence of an alternative divided by that of the best translation, at least; see docs/text.md."""


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
    wrong_numbers: tuple[str, ...] = ()
    """Digits of numbers that the translation lacks, or has although the source does not."""
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


def plausible(translation: Translation) -> Translation:
    """Leave out alternatives that are hardly as good as the best translation, and those that look like a better
    one. The translation must have scores of tokens."""
    confidence = [hypothesis.confidence or 0.0 for hypothesis in translation.hypotheses]
    least = MIN_RELATIVE_CONFIDENCE * max(confidence, default=0.0)
    kept, seen = list[TextHypothesis](), set[str]()
    for hypothesis, own in zip(translation.hypotheses, confidence, strict=True):
        if not kept or (own >= least and look(hypothesis.text) not in seen):
            kept.append(hypothesis)
            seen.add(look(hypothesis.text))
    return replace(translation, hypotheses=tuple(kept))


def distinct(translations: Iterable[TextTranslation]) -> list[TextTranslation]:
    """Leave out translations that look like one before."""
    first: dict[str, TextTranslation] = {}
    for translation in translations:
        first.setdefault(look(translation.text), translation)
    return list(first.values())


def look(text: str) -> str:
    """A text without what does not make it another one: white space and letter case."""
    return "".join(text.split()).casefold()
