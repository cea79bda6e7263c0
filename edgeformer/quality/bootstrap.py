"""How sure a difference of BLEU is: paired bootstrap resampling (Koehn 2004, "Statistical significance tests for
machine translation evaluation")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer.quality.scores import bleu_metric

RESAMPLES = 1000
ORDERS = 4
"""Lengths of the n-grams that BLEU counts: 1 to this."""

Counts = NDArray[np.int64]
"""For each sentence, what corpus BLEU adds up, ``(N, 10)``: lengths of output and reference, n-grams that match by
their length, and all n-grams by their length."""


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Counts:
    """Count what BLEU needs.

    Args:
        hypotheses: output.
        references: the same number of references.
        tokenize: sacreBLEU's tokenizer.

    Raises:
        ConfigError: the tokenizer cannot be used.
    """
    bleu = bleu_metric(tokenize, effective_order=True)
    scores = [bleu.sentence_score(one, [other]) for one, other in zip(hypotheses, references, strict=True)]
    return np.array([[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in scores], np.int64)


def corpus_bleu(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """BLEU of sums of counts, ``(R, 10)`` to ``(R,)``, 0 … 100; without smoothing, so 0 if n-grams of a length never
    match."""
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = sums[:, 2 : 2 + ORDERS] / np.maximum(sums[:, 2 + ORDERS :], 1)
        brevity = np.minimum(0.0, 1 - sums[:, 1] / np.maximum(sums[:, 0], 1))
        bleu: NDArray[np.float64] = 100 * np.exp(brevity + np.log(precisions).mean(axis=1))
    return bleu


def difference_error(one: Counts, other: Counts, seed: int = 0) -> float:
    """Half of the interval in which the difference of two systems' BLEU lies with 95 % certainty.

    Both systems are scored on the same sentences drawn anew, :data:`RESAMPLES` times.

    Args:
        one: counts of a system.
        other: counts of another on the same sentences.
        seed: of the draws; the result is the same for the same seed.
    """
    generator = np.random.default_rng(seed)
    sentences = len(one)
    draws = generator.multinomial(sentences, np.full(sentences, 1 / sentences), size=RESAMPLES)
    differences = corpus_bleu(draws @ one) - corpus_bleu(draws @ other)
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(high - low) / 2
