"""Paired bootstrap: counts that give sacreBLEU's score, and errors that shrink with the number of sentences."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.quality.bootstrap import corpus_bleu, difference_error, sentence_counts
from edgeformer.quality.scores import score

WORDS = ["the", "small", "old", "dog", "runs", "past", "green", "houses", "near", "a", "river", "of", "stone"]
RANDOM = np.random.default_rng(0)


def sentences(count: int) -> list[list[str]]:
    return [list(RANDOM.choice(WORDS, size=12)) for _ in range(count)]


def changed(lines: list[list[str]], share: float) -> list[str]:
    return [" ".join(word if RANDOM.random() > share else "x" for word in line) for line in lines]


def test_sums_of_counts_give_sacrebleu() -> None:
    lines = sentences(50)
    references, output = changed(lines, 0), changed(lines, 0.2)
    bleu = corpus_bleu(sentence_counts(output, references).sum(axis=0, keepdims=True))[0]
    assert bleu == pytest.approx(score(output, references).bleu, abs=1e-6)
    shorter = [line.rpartition(" ")[0] for line in output]
    bleu = corpus_bleu(sentence_counts(shorter, references).sum(axis=0, keepdims=True))[0]
    assert bleu == pytest.approx(score(shorter, references).bleu, abs=1e-6)


def test_the_error_covers_the_difference_and_shrinks_with_the_text() -> None:
    errors = []
    for count in (100, 1600):
        lines = sentences(count)
        references = changed(lines, 0)
        one, other = (sentence_counts(changed(lines, 0.1), references) for _ in range(2))
        difference = float(np.diff([corpus_bleu(counts.sum(axis=0, keepdims=True))[0] for counts in (one, other)])[0])
        errors.append(difference_error(one, other))
        assert abs(difference) < 2 * errors[-1]  # both are equally good
    assert 2.5 < errors[0] / errors[1] < 6  # the square root of 16 is 4
    assert difference_error(one, one) == 0
    assert difference_error(one, other) == difference_error(one, other)
