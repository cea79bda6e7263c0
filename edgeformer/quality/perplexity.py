"""Perplexity of reference translations under a model, by teacher forcing through the step decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from edgeformer.errors import ConfigError
from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.decoding.forced_steps import Pair, forced_batch, forced_steps
from edgeformer_runtime.decoding.session import StepSession
from edgeformer_runtime.translator import AnyTranslator

BATCH = 32
"""Number of pairs per batch."""


class Perplexity(msgspec.Struct, kw_only=True, frozen=True):
    """How well a model predicts reference translations; comparable only between models with the same tokenizer."""

    perplexity: float
    """Exponential of the mean negative log-likelihood per token."""
    tokens: int
    """Number of tokens predicted, end tokens included."""
    left_out: int
    """Number of pairs left out, since a side is blank or the reference is too long for the model."""


def perplexity(
    translator: AnyTranslator,
    texts: Sequence[str],
    references: Sequence[str],
    progress: Callable[[float], None] = lambda fraction: None,
) -> Perplexity:
    """Compute the perplexity of reference translations.

    Args:
        translator: a bundle or a run.
        texts: sentences.
        references: their translations.
        progress: called with the fraction done, 0 to 1.

    Raises:
        ConfigError: no pair fits the model.
        InputError: a text is not valid Unicode, or has more tokens than the model accepts and truncation is disabled.
    """
    session = translator.session
    sources = [source.ids for source in translator.encode(texts)]
    targets = translator.target_tokenizer.encode_batch(references, special_tokens=True)
    # The start token takes the first step, so a reference takes as many steps as it has tokens with its end token.
    pairs = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if source and 1 < len(target) <= session.max_target_length
    ]
    if not pairs:
        raise ConfigError("No pair has text on both sides and a reference short enough for the model.")
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    loss = 0.0
    for start in range(0, len(pairs), BATCH):
        loss += _negative_log_likelihood(session, pairs[start : start + BATCH])
        progress(min(1.0, (start + BATCH) / len(pairs)))
    tokens = sum(len(target) for _, target in pairs)
    return Perplexity(perplexity=math.exp(min(loss / tokens, 700.0)), tokens=tokens, left_out=len(texts) - len(pairs))


def _negative_log_likelihood(session: StepSession, pairs: Sequence[Pair]) -> float:
    """Sum of the negative log-likelihoods, in nats, of all target tokens, end tokens included."""
    batch = forced_batch([(source, target[:-1]) for source, target in pairs], session.special)
    labels, _ = pad([target for _, target in pairs], session.special.pad)
    rows, total = np.arange(len(pairs)), 0.0
    steps = forced_steps(session.start(batch.source, batch.source_length), batch.target)
    for step, logits in enumerate(steps):
        score = logits.astype(np.float64)
        score -= score.max(axis=1, keepdims=True)
        log_likelihood = score[rows, labels[:, step]] - np.log(np.exp(score).sum(axis=1))
        total -= float(log_likelihood[batch.target_length > step].sum())
    return total
