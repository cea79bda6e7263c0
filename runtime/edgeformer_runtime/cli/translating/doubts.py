"""What ``translate`` says of sentences that may be wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from edgeformer_runtime.cli.output import plural

if TYPE_CHECKING:
    from edgeformer_runtime.text.results import TextTranslation
    from edgeformer_runtime.translator import AnyTranslator

_READ_CHARACTERS = 1000
"""Source text that is kept, to identify its language."""
_SURE, _SURE_LETTERS = 0.9, 20
"""Probability of a language, and the letters it takes, to say that a text is in another one."""


@dataclass
class Doubts:
    """Counts sentences of low confidence."""

    language: str = ""
    """Language that the model translates from; empty if it is not known."""
    sentences: int = 0
    doubtful: int = 0
    text: str = ""
    """Sources of such sentences, and of those that were mostly copied: of the first."""

    @classmethod
    def of(cls, translator: AnyTranslator, texts: Iterable[TextTranslation]) -> Self:
        """Count the sentences of texts."""
        doubts = cls(translator.languages[0])
        for sentence in (sentence for text in texts for sentence in text.sentences):
            if sentence.translation is None:
                continue
            doubts.sentences += 1
            doubts.doubtful += sentence.is_doubtful
            source, words = sentence.translation.source.text, {*sentence.translation.text.split()}
            is_copied = 2 * len(words.intersection(source.split())) > len(words)  # as large models do with any text
            if (sentence.is_doubtful or is_copied) and len(doubts.text) < _READ_CHARACTERS:
                doubts.text += source[:_READ_CHARACTERS] + "\n"
        return doubts

    def merged(self, other: Doubts | None) -> Doubts:
        """Return what both have counted."""
        if other is None:
            return self
        text = (self.text + other.text)[:_READ_CHARACTERS]
        sentences, doubtful = self.sentences + other.sentences, self.doubtful + other.doubtful
        return Doubts(self.language or other.language, sentences, doubtful, text)

    def warnings(self, advice: str = "") -> Iterator[str]:
        """What to tell the user: nothing, if there is no doubt.

        Args:
            advice: how to find the sentences.
        """
        if self.doubtful:
            yield f"{self.doubtful:,} of {plural(self.sentences, 'sentence')} may be wrong{advice}."
        from edgeformer_runtime.bundle.text_format import matching_code
        from edgeformer_runtime.text.languages import can_detect_languages, detect_languages

        if not self.language or not can_detect_languages() or sum(map(str.isalpha, self.text)) < _SURE_LETTERS:
            return
        for found in detect_languages(self.text)[:1]:
            if found.probability >= _SURE and matching_code(found.language, [self.language]) is None:
                yield f"The text looks like `{found.language}`, but the model translates from `{self.language}`."
