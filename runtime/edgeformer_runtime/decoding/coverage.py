"""The coverage penalty: hypotheses that leave source tokens untranslated get lower scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.requests import Request
from edgeformer_runtime.decoding.search import Hypothesis
from edgeformer_runtime.decoding.session import FloatArray, StepSession


def ranked_by_coverage(
    session: StepSession, requests: Sequence[Request], results: Sequence[Sequence[Hypothesis]], options: DecodeOptions
) -> list[list[Hypothesis]]:
    """Add the coverage penalty to scores, and sort by them.

    Args:
        session: the model, which must have attention weights.
        requests: the sentences.
        results: hypotheses of each sentence, with scores.
        options: the weight of the penalty, and the size of batches.

    Raises:
        BundleError: the model has no attention weights.
    """
    pairs = [
        (request.source, (*hypothesis.ids, *[session.special.eos] * hypothesis.finished))
        for request, hypotheses in zip(requests, results, strict=True)
        for hypothesis in hypotheses
    ]
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    weights = iter(attention_weights(session, sources, targets, options.max_batch_tokens))
    ranked = []
    for hypotheses in results:
        scored = [
            replace(hypothesis, score=(hypothesis.score or 0.0) + options.coverage_penalty * coverage(next(weights)))
            for hypothesis in hypotheses
        ]
        ranked.append(sorted(scored, key=lambda hypothesis: hypothesis.score or 0.0, reverse=True))
    return ranked


def coverage(weights: FloatArray) -> float:
    """Compute the logarithm of the attention that each source token gets, at most 1, summed over all source tokens.

    Args:
        weights: attention weights, ``(T, S)``.
    """
    attended = weights.astype(np.float64).sum(axis=0)
    return float(np.log(np.minimum(attended[attended > 0], 1)).sum())
