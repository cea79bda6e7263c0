"""Which alternatives are shown."""

from __future__ import annotations

import math

from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_text.results import plausible


def translation(*hypotheses: tuple[str, float]) -> Translation:
    return Translation(
        Source("", ()),
        tuple(TextHypothesis(text, (), (), 0.0, True, (math.log(confidence),)) for text, confidence in hypotheses),
    )


def texts(*hypotheses: tuple[str, float]) -> list[str]:
    return [hypothesis.text for hypothesis in plausible(translation(*hypotheses)).hypotheses]


def test_alternatives_are_nearly_as_sure_as_the_best() -> None:
    assert texts(("a", 0.9), ("b", 0.55), ("c", 0.5)) == ["a", "b"]
    assert texts(("a", 0.2), ("b", 0.9), ("c", 0.5)) == ["a", "b"], "the first is the translation itself"


def test_they_differ_in_more_than_white_space_and_case() -> None:
    assert texts(("Un chien !", 0.9), ("un chien!", 0.9), ("Un\u00a0chien !", 0.9), ("Un chat !", 0.9)) == [
        "Un chien !",
        "Un chat !",
    ]


def test_without_scores_none_is_left_out() -> None:
    hypotheses = tuple(TextHypothesis(text, (), (), 0.0, True) for text in ("a", "b"))
    assert len(plausible(Translation(Source("", ()), hypotheses)).hypotheses) == 2
    assert plausible(Translation(Source("", ()), ())).hypotheses == ()
