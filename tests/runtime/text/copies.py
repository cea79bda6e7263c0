"""Translations that are what a test says, so that what is around them can be compared exactly."""

from __future__ import annotations

from collections.abc import Callable

from edgeformer_runtime.source import Source
from edgeformer_runtime.text.plan import Plan
from edgeformer_runtime.text.results import TextTranslation
from edgeformer_runtime.translation import TextHypothesis, Translation


def translation(source: str, target: str) -> Translation:
    """A translation without tokens, whose words therefore come from nowhere."""
    return Translation(Source(source, ()), (TextHypothesis(target, (), (), 0.0, True),))


def join(plan: Plan, translate: Callable[[str], str] = str) -> TextTranslation:
    """Join translations made by a function; by default, copies."""
    return plan.join([translation(sentence, translate(sentence)) for sentence in plan.sentences])
