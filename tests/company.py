"""What a translator promises of every text: the same translation alone and in a batch of any order and size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgeformer_runtime.search.options import DecodeChanges
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import AnyTranslator

EVERY_PROCESSOR: list[DecodeChanges] = [
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3},
    {"beam_size": 3, "n_best": 3, "suppress_tokens": (5, 6), "disable_unk": True},
    {"beam_size": 2, "n_best": 2, "min_length": 4, "no_repeat_ngram_size": 2},
    {"beam_size": 1, "repetition_penalty": 1.5},
    {"beam_size": 4, "n_best": 4, "repetition_penalty": 1.5, "suppress_sequences": ((5, 6), (7,))},
    {"beam_size": 1, "sampling_topk": 0, "seed": 3},
    {"beam_size": 1, "sampling_topk": 5, "sampling_topp": 0.9, "seed": 3, "n_best": 3},
    {"beam_size": 2, "return_alternatives": True, "n_best": 3},
]
"""Searches in which every option that changes logits or the search occurs, without and with others."""


def changed_by_company(
    translator: AnyTranslator,
    texts: Sequence[str],
    *,
    tolerance: float = 1e-5,
    expected: Sequence[Translation] | None = None,
    target_prefix: Sequence[Any] | None = None,
    max_batch_tokens: int = 4096,
    **options: Any,
) -> list[str]:
    """Translate texts together, shuffled, and each alone; returns those whose hypotheses or scores are not the same.

    Args:
        translator: the translator.
        texts: the texts.
        tolerance: how far scores may be from each other.
        expected: what another translator gives for the texts; by default, this one gives it for all together.
        target_prefix: a prefix or ``None`` for each text.
        max_batch_tokens: size of the batches of the shuffled texts.
        options: options of the search.
    """
    prefixes = list(target_prefix or [None] * len(texts))
    order = np.random.default_rng(0).permutation(len(texts)).tolist()

    def translate(indices: list[int], size: int = 4096) -> list[Translation]:
        return translator.translate(
            [texts[index] for index in indices],
            target_prefix=[prefixes[index] for index in indices],
            max_batch_tokens=size,
            **options,
        )

    together = expected or translate(list(range(len(texts))))
    shuffled = dict(zip(order, translate(order, max_batch_tokens), strict=True))
    alone = [translate([index])[0] for index in range(len(texts))]
    return [
        text
        for index, text in enumerate(texts)
        if not all(_same(together[index], found, tolerance) for found in (shuffled[index], alone[index]))
    ]


def _same(one: Translation, other: Translation, tolerance: float) -> bool:
    """Whether ids, ends and order of the hypotheses are the same, and scores within the tolerance."""
    if [(each.ids, each.finished) for each in one.hypotheses] != [
        (each.ids, each.finished) for each in other.hypotheses
    ]:
        return False
    mine, theirs = ([each.score or 0.0 for each in translation.hypotheses] for translation in (one, other))
    return bool(np.allclose(mine, theirs, rtol=0, atol=tolerance))
