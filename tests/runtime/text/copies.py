"""Translations that are what a test says, so that what is around them can be compared exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgeformer_runtime.source import Source
from edgeformer_runtime.text.plan import Plan
from edgeformer_runtime.text.results import TextTranslation
from edgeformer_runtime.translation import TextHypothesis, Translation


def translation(source: str, target: str) -> Translation:
    """A translation without tokens, whose words therefore come from nowhere."""
    return Translation(Source(source, ()), (TextHypothesis(target, (), (), 0.0, True),))


Translate = Callable[[Sequence[Source]], Sequence[Translation]]


def join(plan: Plan, translate: Callable[[str], str] = str, again: Translate | None = None) -> TextTranslation:
    """Join translations made by a function; by default, copies. Another one may translate what is wanted again."""

    def translated(sentences: Sequence[Source]) -> list[Translation]:
        return [translation(sentence.text, translate(sentence.text)) for sentence in sentences]

    return plan.join(translated(plan.sentences), again or translated)


def read_of(plan: Plan) -> list[str]:
    """What the model reads of the sentences of a text."""
    return [sentence.text for sentence in plan.sentences]
