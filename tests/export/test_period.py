"""Whether a model needs final punctuation."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from edgeformer_export.traits import SENTENCES, measure_period
from edgeformer_runtime.translation import Source, TextHypothesis, Translation

TEXTS = [f"The dog runs {number} times." for number in range(100)]


class Stub:
    """Copies words, each with a probability that depends on its sentence."""

    languages = "en", "fr"
    target_tokenizer = SimpleNamespace(decode=" ".join)

    def __init__(self, bare: float, marked: float) -> None:
        self.scores = {False: bare, True: marked}
        self.seen: list[list[str]] = []

    def options(self, **changes: Any) -> None:
        assert changes["beam_size"] == 1

    def too_long(self, texts: Sequence[str]) -> set[int]:
        return {index for index, text in enumerate(texts) if "too long" in text}

    def translate(self, texts: Sequence[str], options: None) -> list[Translation]:
        self.seen.append(list(texts))
        return [self._translated(text) for text in texts]

    def _translated(self, text: str) -> Translation:
        is_marked = text.endswith(".")
        tokens: Any = (*text.removesuffix(".").split(), *["."] * is_marked)
        noise = len(text) % 5 / 1000
        content = [self.scores[is_marked] + noise if is_marked else self.scores[is_marked]] * len(tokens)
        scores = (*content[: len(tokens) - is_marked], *[0.0] * is_marked, 0.0 if is_marked else -9.0)
        hypothesis = TextHypothesis(" ".join(tokens), tokens, tokens, 0.0, True, scores)
        return Translation(Source(text, ()), (hypothesis,))


@pytest.mark.parametrize(
    ("bare", "marked", "is_needed"), [(-0.5, -0.3, True), (-0.3, -0.5, False), (-0.3, -0.31, False)]
)
def test_a_model_needs_a_period_that_makes_it_surer_of_the_same_words(
    bare: float, marked: float, *, is_needed: bool
) -> None:
    stub: Any = Stub(bare, marked)
    report = measure_period(stub, TEXTS)
    assert report is not None
    assert report.is_needed is is_needed
    assert report.sentences == SENTENCES
    assert report.gain == pytest.approx(marked - bare, abs=0.005), "the mark and the end are left out"


def test_statements_are_preferred_to_names() -> None:
    stub: Any = Stub(-0.5, -0.3)
    measure_period(stub, ["Germany", "too long.", "Who runs?", *TEXTS, *TEXTS])
    bare, marked = stub.seen
    assert set(bare) < {text.removesuffix(".") for text in TEXTS}
    assert marked == [f"{text}." for text in bare]
    assert len(set(bare)) == len(bare) == SENTENCES
    measure_period(stub, ["Germany", "France", "too long", "Who runs?"])
    assert stub.seen[-1] == ["Germany.", "France."]
    assert measure_period(stub, ["Germany"]) is None
