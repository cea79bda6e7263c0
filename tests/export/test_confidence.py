"""The threshold of confidence tells text that a model is for from unreadable text."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from edgeformer.run.info import Validation
from edgeformer_export.traits import MAX_CONFIDENCE, MIN_TEXTS, UNUSUAL, failed_validation, min_confidence
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_runtime.translator import Translator
from edgeformer_text.text_translator import MIN_CONFIDENCE

ROOT = Path(__file__).resolve().parents[2]
EVERYDAY = [
    "The cat is sleeping on the bed.",
    "I would like a cup of coffee, please.",
    "Where is the train station?",
    "She has been living in Paris for three years.",
    "We are going to the beach tomorrow.",
    "He didn't know what to say.",
    "What time is it?",
    "My brother is older than me.",
    "I can't find my keys.",
    "Thank you for your help.",
    "It is raining today.",
    "They bought a new house last year.",
    "Do you speak English?",
    "I am very tired.",
    "The children are playing in the garden.",
    "This book is very interesting.",
]
TEXTS = [f"The dog number {number} runs." for number in range(100)]
NONSENSE = [
    "asdf qwer zxcv",
    "Selonte la cloche brimfed.",
    "Le chat dort sur le lit.",
    "Der Hund läuft durch den Wald.",
    "blorp flim snazzle wug",
    "Xylophonic jabberwocky frumious bandersnatch.",
]


def test_a_model_that_ships_tells_everyday_sentences_from_nonsense() -> None:
    with Translator.open(ROOT / "models" / "en-fr", threads=1) as translator:
        least = min_confidence(translator, EVERYDAY)
        assert least is not None
        assert min_confidence(translator, EVERYDAY) == least
        own, other = (
            [translation.best.confidence for translation in translator.translate(texts, return_token_scores=True)]
            for texts in (EVERYDAY, NONSENSE)
        )
    assert np.mean([value is not None and value >= least for value in own]) >= 0.9
    assert np.mean([value is not None and value < least for value in other]) >= 0.9


def test_where_unreadable_text_is_like_the_rest_little_is_doubtful() -> None:
    with Translator.open(ROOT / "models" / "en-fr", threads=1) as translator:
        assert min_confidence(translator, NONSENSE * 3) == MIN_CONFIDENCE
    copies = mock.Mock(defaults=DecodeOptions())
    copies.session.max_source_length = copies.session.max_target_length = 100
    copies.too_long.return_value = set()
    score = {text: -1 / (2 + index) for index, text in enumerate(TEXTS)}

    def translate(texts: list[str], options: DecodeOptions) -> list[Translation]:
        return [
            Translation(Source(text, (1,)), (TextHypothesis(text, (), (), 0.0, True, (score.get(text, -0.01),)),))
            for text in texts
        ]

    copies.translate = translate
    copies.options = lambda **changes: DecodeOptions(**changes)
    confidence = np.exp([*score.values()])
    least = min_confidence(copies, TEXTS)
    assert least == pytest.approx(np.quantile(confidence, UNUSUAL), abs=1e-3)
    assert 0 < np.mean(confidence < least) <= UNUSUAL


@pytest.mark.parametrize("level", [-1e-4, -0.003, -0.006, -0.05, -0.3, -3.0])
@pytest.mark.parametrize("spread", [0.0, 1e-3, 0.1])
def test_a_sure_translation_is_not_doubtful_however_sure_the_others_are(level: float, spread: float) -> None:
    model = mock.Mock(defaults=DecodeOptions())
    model.session.max_source_length = model.session.max_target_length = 100
    model.too_long.return_value = set()
    model.options = lambda **changes: DecodeOptions(**changes)
    model.translate = lambda texts, options: [
        Translation(Source(text, (1,)), (TextHypothesis(text, (), (), 0.0, True, (score,)),))
        for text, score in ((text, level - spread * (sum(map(ord, text)) % 7)) for text in texts)
    ]
    least = min_confidence(model, TEXTS)
    assert least is not None
    assert least <= MAX_CONFIDENCE < 0.994
    own = np.exp([level - spread * (sum(map(ord, text)) % 7) for text in TEXTS])
    assert np.mean(own < least) <= max(UNUSUAL, float(np.mean(own < MIN_CONFIDENCE)))


@pytest.mark.parametrize(
    ("bleu", "perplexity", "expected"), [(3.4, 40, True), (99.6, 1, False), (0.5, 5, False), (12, 40, False)]
)
def test_a_model_that_translated_its_validation_text_badly_failed(
    bleu: float, perplexity: float, expected: bool
) -> None:
    final = Validation(step=1, loss=1.0, perplexity=perplexity, bleu=bleu, exact_match=0.0, sentences=100, minutes=1.0)
    assert failed_validation(final) == expected
    assert not failed_validation(None), "an imported model"


@pytest.mark.parametrize("texts", [EVERYDAY[: MIN_TEXTS - 1], [], ["word " * 400] * 20])
def test_what_cannot_tell_gives_no_threshold(texts: list[str]) -> None:
    with Translator.open(ROOT / "models" / "en-fr", threads=1) as translator:
        assert min_confidence(translator, texts) is None
