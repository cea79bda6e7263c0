"""From texts to the sentences that a model translates, and back: the one place where the server splits and joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.translator import Translation

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

    def join(self, translations: Sequence[Translation]) -> TextTranslation:
        """Put translations in place of the sentences.

        Args:
            translations: one for each of :attr:`sentences`.

        Raises:
            InputError: a sentence could not be translated.
        """
        parts, sentences, done, length = [], [], 0, 0
        for (start, end), translation in zip(self.spans, translations, strict=True):
            between = self.text[done:start]
            target = length + len(between), length + len(between) + len(translation.text)
            parts += [between, translation.text]
            sentences.append(SentenceTranslation((start, end), target, translation))
            done, length = end, target[1]
        return TextTranslation("".join([*parts, self.text[done:]]), tuple(sentences))


def split(text: str, format: str = "text") -> Plan:
    """Split a text.

    Raises:
        OptionError: the format is not supported.
    """
    if format not in FORMATS:
        raise OptionError(f"{format} format is not supported")
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
