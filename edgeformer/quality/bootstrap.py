"""Confidence intervals by bootstrap resampling: of BLEU differences, and of medians of times and their ratios."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.scores import bleu_metric

RESAMPLES = 1000
SEED = 0
"""Of the resampling, so that the same values have the same interval."""
MAX_VALUES = 1_000_000
"""Number of times that are resampled at once, which bounds the memory."""
ORDERS = 4
"""Maximum n-gram length that BLEU counts."""

BleuCounts = NDArray[np.int64]
"""Per-sentence statistics of corpus BLEU, ``(N, 10)``: lengths of hypothesis and reference, then the number of matches
for each n-gram length, then the total number of n-grams for each length."""


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> BleuCounts:
    """Compute the BLEU statistics of each sentence, ``(N, 10)``, int64.

    Args:
        hypotheses: N translations.
        references: N references.
        tokenize: name of sacreBLEU's tokenizer.

    Raises:
        ConfigError: the tokenizer cannot be used.
    """
    bleu = bleu_metric(tokenize, effective_order=True)
    scores = [bleu.sentence_score(text, [reference]) for text, reference in zip(hypotheses, references, strict=True)]
    return np.array([[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores], np.int64)


def corpus_bleu(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute BLEU, 0 … 100, from summed statistics, ``(R, 10)`` to ``(R,)``, without smoothing: 0 if any n-gram length
    has no match."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = sums[:, 2 : 2 + ORDERS] / np.maximum(sums[:, 2 + ORDERS :], 1)
        brevity = np.minimum(0.0, 1 - sums[:, 1] / np.maximum(sums[:, 0], 1))
        bleu: NDArray[np.float64] = 100 * np.exp(brevity + np.log(precisions).mean(axis=1))
    return bleu


def resampled_bleu(counts: BleuCounts) -> NDArray[np.float64]:
    """Compute BLEU on :data:`RESAMPLES` texts of N sentences drawn with replacement, ``(N, 10)`` to ``(RESAMPLES,)``.

    The draws depend only on N, so the results of two systems on the same text are paired.
    """
    generator = np.random.default_rng(SEED)
    sentences = len(counts)
    draws = generator.multinomial(sentences, np.full(sentences, 1 / sentences), size=RESAMPLES)
    return corpus_bleu(draws @ counts)


def difference_interval(first: BleuCounts, second: BleuCounts) -> Interval:
    """Compute the confidence interval of the first system's BLEU minus the second's.

    Paired bootstrap (Koehn 2004, "Statistical significance tests for machine translation evaluation"). A difference is
    significant if the interval does not contain 0.

    Args:
        first: statistics of one system.
        second: statistics of the other system on the same sentences.
    """
    return interval_of(resampled_bleu(first) - resampled_bleu(second))


def median_interval(values: NDArray[np.float64]) -> Interval | None:
    """Compute the confidence interval of the median of times, or of the ratios of paired times.

    Rounds and calls are resampled independently of each other (Owen 2007, "The pigeonhole bootstrap"), since both the
    state of the machine and the sentence change a time.

    Args:
        values: one value for each round and call, ``(rounds, calls)``.

    Returns:
        The interval, or ``None`` for a single value.
    """
    if values.size < 2:
        return None
    generator = np.random.default_rng(SEED)
    medians: list[float] = []
    chunk = max(1, MAX_VALUES // values.size)
    for start in range(0, RESAMPLES, chunk):
        rounds, calls = (generator.integers(size, size=(min(chunk, RESAMPLES - start), size)) for size in values.shape)
        drawn = values[rounds[:, :, None], calls[:, None, :]]  # (resamples, rounds, calls)
        medians += np.median(drawn.reshape(len(drawn), -1), axis=1).tolist()
    return interval_of(np.array(medians))


def interval_of(values: NDArray[np.float64]) -> Interval:
    """Return the central 95 % of a statistic's values on resampled data."""
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return Interval(low=low, high=high)


class Interval(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A 95 % confidence interval."""

    low: float
    """Lower end."""
    high: float
    """Upper end."""

    def __format__(self, spec: str) -> str:
        """Format both ends: ``f"{interval:+.2f}"`` is ``-0.05 to +0.30``."""
        return f"{self.low:{spec}} to {self.high:{spec}}"
