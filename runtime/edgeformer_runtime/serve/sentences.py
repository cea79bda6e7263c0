"""From texts to the sentences that a model translates, and back: the one place where the server splits and joins.

The names and signatures are those of the text layer, which can take its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.translator import AnyTranslator, TextHypothesis, Translation

FORMATS = ("text",)
"""Formats of texts. ``html`` needs the text layer."""

Span = tuple[int, int]
"""Start and end of a part of a text, in characters."""


@dataclass(frozen=True)
class SentenceTranslation:
    """A sentence within a text."""

    source: Span
    target: Span
    """Where its translation is in :attr:`TextTranslation.text`."""
    translation: Translation | None
    """``None`` if it was copied unchanged."""
    confidence: float | None = None
    """Geometric mean of the probabilities of the translation's tokens; ``None`` without scores."""


@dataclass(frozen=True)
class TextTranslation:
    """The translation of a text of several sentences."""

    text: str
    sentences: tuple[SentenceTranslation, ...]


@dataclass(frozen=True)
class Plan:
    """A text that has been split: one line is one sentence, and white space and lines without letters are copied."""

    text: str
    spans: tuple[Span, ...]
    """Where the sentences are in the text."""

    @property
    def sentences(self) -> list[str]:
        """What must be translated."""
        return [self.text[start:end] for start, end in self.spans]

    def join(self, translations: Sequence[Translation], decoding: DecodeOptions | None = None) -> TextTranslation:
        """Put translations in place of the sentences.

        Args:
            translations: one for each of :attr:`sentences`.
            decoding: the options that they were translated with.

        Raises:
            InputError: a sentence could not be translated.
        """
        parts, sentences, done, length = [], [], 0, 0
        for (start, end), translation in zip(self.spans, translations, strict=True):
            between = self.text[done:start]
            target = length + len(between), length + len(between) + len(translation.text)
            parts += [between, translation.text]
            sentences.append(SentenceTranslation((start, end), target, translation, _confidence(translation.best)))
            done, length = end, target[1]
        return TextTranslation("".join([*parts, self.text[done:]]), tuple(sentences))


class TextTranslator:
    """Splits texts for a translator.

    Args:
        translator: what translates the sentences; it must stay open until they are joined.
    """

    def __init__(self, translator: AnyTranslator) -> None:
        self.translator = translator

    def split(self, text: str, *, format: str = "text") -> Plan:
        """Split a text.

        Raises:
            OptionError: the format is not supported.
        """
        if format not in FORMATS:
            raise OptionError(f"`format` must be one of {', '.join(FORMATS)}, but is {format!r}.")
        spans, start = [], 0
        for line in text.splitlines(keepends=True):
            if is_translatable(line):
                first = start + len(line) - len(line.lstrip())
                spans.append((first, start + len(line.rstrip())))
            start += len(line)
        return Plan(text, tuple(spans))


def is_translatable(text: str) -> bool:
    """Whether a text has letters, rather than numbers, punctuation and emoji alone."""
    return any(character.isalpha() for character in text)


def _confidence(hypothesis: TextHypothesis) -> float | None:
    scores = hypothesis.token_scores
    return math.exp(sum(scores) / len(scores)) if scores else None
