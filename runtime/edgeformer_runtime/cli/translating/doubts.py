"""Counts of sentences that may be wrong, which ``translate`` reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from edgeformer_runtime.cli.output import plural

if TYPE_CHECKING:
    from edgeformer_runtime.text.results import TextTranslation


class Doubts(NamedTuple):
    """Number of translated sentences, and of those with low confidence."""

    sentences: int = 0
    doubtful: int = 0

    @classmethod
    def of(cls, texts: Iterable[TextTranslation]) -> Doubts:
        """Count the sentences of texts."""
        translated = [each for text in texts for each in text.sentences if each.translation is not None]
        return cls(len(translated), sum(sentence.is_doubtful for sentence in translated))

    def merged(self, other: Doubts | None) -> Doubts:
        """Return the sums of both."""
        return self if other is None else Doubts(self.sentences + other.sentences, self.doubtful + other.doubtful)

    def warnings(self, advice: str = "") -> Iterator[str]:
        """Yield a warning if a sentence may be wrong; ``advice`` tells how to find it."""
        if self.doubtful:
            yield f"{self.doubtful:,} of {plural(self.sentences, 'sentence')} may be wrong{advice}."
