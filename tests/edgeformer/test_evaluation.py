"""Scores against hand-made examples."""

from __future__ import annotations

import pytest

from edgeformer.errors import ConfigError
from edgeformer.quality.scores import score


def test_a_perfect_translation_scores_full_marks() -> None:
    lines = ["Le chien court dans la neige épaisse.", "Deux hommes lisent un vieux journal."]
    scores = score(lines, lines)
    assert [scores.bleu, scores.chrf, scores.exact_match, scores.sentences] == pytest.approx([100, 100, 1, 2])
    assert "tok:13a" in scores.bleu_signature
    assert "nc:6" in scores.chrf_signature


def test_pretokenized_text_is_not_tokenized_again() -> None:
    hypothesis, reference = ["un groupe d&apos; hommes ."], ["un groupe d&apos; hommes !"]
    assert "tok:none" in score(hypothesis, reference, "none").bleu_signature
    assert score(hypothesis, reference, "none").bleu != score(hypothesis, reference).bleu


def test_half_of_the_sentences_match() -> None:
    scores = score(["a b c d e", "f g h i j"], ["a b c d e", "f g h i k"])
    assert scores.exact_match == 0.5
    assert 50 < scores.bleu < 100


@pytest.mark.parametrize(
    ("lines", "tokenize", "message"), [([], "13a", "no sentence"), (["a"], "klingon", "`tokenize`")]
)
def test_nothing_to_score_is_an_error(lines: list[str], tokenize: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        score(lines, lines, tokenize)
