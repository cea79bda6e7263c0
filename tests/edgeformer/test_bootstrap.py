"""Bootstrap: counts that give sacreBLEU's score, and intervals that shrink with the amount of data."""

from __future__ import annotations

import numpy as np
import pytest

from edgeformer.quality.bootstrap import Interval, corpus_bleu, difference_interval, median_interval, sentence_counts
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


def test_the_interval_covers_the_difference_and_shrinks_with_the_text() -> None:
    widths = []
    for count in (60, 540):
        lines = sentences(count)
        references = changed(lines, 0)
        one, other = (sentence_counts(changed(lines, 0.1), references) for _ in range(2))
        interval = difference_interval(one, other)
        scores = [corpus_bleu(counts.sum(axis=0, keepdims=True))[0] for counts in (one, other)]
        assert interval.low <= scores[0] - scores[1] <= interval.high
        assert interval.low - (interval.high - interval.low) < 0 < interval.high + (interval.high - interval.low)
        widths.append(interval.high - interval.low)
    assert 1.9 < widths[0] / widths[1] < 4.5  # the square root of 9 is 3
    assert difference_interval(one, one) == Interval(low=0.0, high=0.0)
    assert difference_interval(one, other) == difference_interval(one, other)


def test_a_worse_system_is_significantly_worse() -> None:
    lines = sentences(400)
    references = changed(lines, 0)
    good, bad = (sentence_counts(changed(lines, share), references) for share in (0.05, 0.2))
    assert difference_interval(good, bad).low > 0
    assert difference_interval(bad, good).high < 0


def test_the_interval_of_a_median_reflects_rounds_and_calls() -> None:
    calls = RANDOM.normal(10.0, 1.0, size=200)
    steady = np.tile(calls, (8, 1))
    interval = median_interval(steady)
    assert interval is not None
    assert interval.low <= float(np.median(calls)) <= interval.high
    assert 0.1 < interval.high - interval.low < 1.0  # 2 · 1.96 · 1.25 / sqrt(200) is 0.35

    # A machine that is slower in some rounds makes the median less certain, however many calls there are.
    unsteady = median_interval(steady * np.array([1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5])[:, None])
    assert unsteady is not None
    assert unsteady.high - unsteady.low > 3

    # Rounds that slow down both systems leave their ratio as certain as it was.
    slowed = steady * np.linspace(1, 2, 8)[:, None]
    assert median_interval(2 * slowed / slowed) == Interval(low=2.0, high=2.0)


def test_a_single_time_has_no_interval() -> None:
    assert median_interval(np.array([[1.0]])) is None
    assert median_interval(np.array([[1.0], [3.0]])) == Interval(low=1.0, high=3.0)
    assert f"{Interval(low=-0.054, high=0.3):+.2f}" == "-0.05 to +0.30"
