"""Significance of BLEU differences by paired bootstrap resampling (Koehn 2004, "Statistical significance tests for
machine translation evaluation")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.scores import bleu_metric

RESAMPLES = 1000
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


def difference_error(first: BleuCounts, second: BleuCounts, seed: int = 0) -> float:
    """Compute half the width of the 95 % confidence interval of the difference between two systems' BLEU.

    Both systems are scored on the same resampled sentences, :data:`RESAMPLES` times.

    Args:
        first: statistics of one system.
        second: statistics of the other system on the same sentences.
        seed: seed of the resampling; the same seed gives the same result.
    """
    generator = np.random.default_rng(seed)
    sentences = len(first)
    draws = generator.multinomial(sentences, np.full(sentences, 1 / sentences), size=RESAMPLES)
    differences = corpus_bleu(draws @ first) - corpus_bleu(draws @ second)
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(high - low) / 2
