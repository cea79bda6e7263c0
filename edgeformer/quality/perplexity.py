"""Perplexity of reference translations under a model, by teacher forcing through the step decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from edgeformer.errors import ConfigError
from edgeformer_runtime.search.forced_steps import score_batches
from edgeformer_runtime.search.requests import longest_target
from edgeformer_runtime.translator import AnyTranslator


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
    longest = longest_target(session)
    pairs = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if source and 1 < len(target) <= longest
    ]
    if not pairs:
        raise ConfigError("No pair has text on both sides and a reference short enough for the model.")
    loss, done = 0.0, 0
    for batch in score_batches(session, pairs):
        loss -= sum(float(scores.sum()) for _, scores in batch)
        done += len(batch)
        progress(done / len(pairs))
    tokens = sum(len(target) for _, target in pairs)
    return Perplexity(perplexity=math.exp(min(loss / tokens, 700.0)), tokens=tokens, left_out=len(texts) - len(pairs))
