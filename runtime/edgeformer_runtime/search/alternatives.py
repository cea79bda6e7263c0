"""Alternatives: translations that differ in the first token after the target prefix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.search import Hypothesis, normalized_score

Decode = Callable[[Sequence[Request], DecodeOptions], list[list[Hypothesis]]]
"""Decodes requests."""


def decode_alternatives(
    decode: Decode, requests: Sequence[Request], options: DecodeOptions, special: SpecialTokens
) -> list[list[Hypothesis]]:
    """Find the most probable tokens at the first position, and continue each of them.

    Args:
        decode: decodes requests.
        requests: the sentences.
        options: how to continue; ``n_best`` is the number of alternatives.
        special: ids of the special tokens.

    Returns:
        Alternatives of each sentence, that of the most probable token first; at least one, or none if it was given up.
    """
    only_tokens = replace(
        options,
        beam_size=options.n_best,
        patience=1.0,
        length_penalty=0.0,
        max_ngram_repeats=0,
        return_scores=True,
        suppress_tokens=(*options.suppress_tokens, special.eos),
    )
    firsts = decode([replace(request, limit=len(request.prefix) + 1) for request in requests], only_tokens)
    kept = [
        [
            first
            for rank, first in enumerate(of_sentence)
            if rank == 0 or math.exp(first.score or 0.0) >= options.min_alternative_expansion_prob
        ]
        for of_sentence in firsts
    ]
    branches = [
        replace(request, prefix=first.ids, log_probability=first.score)
        for request, of_sentence in zip(requests, kept, strict=True)
        for first in of_sentence
        if len(first.ids) < request.limit
    ]
    continued = iter(decode(branches, replace(options, n_best=1, return_scores=True)))

    def complete(request: Request, first: Hypothesis) -> list[Hypothesis]:
        if len(first.ids) < request.limit:
            return next(continued)
        length = len(special.prefix) + len(first.ids)
        score = normalized_score(first.score or 0.0, length, options.length_penalty)
        return [replace(first, score=score)]

    results = []
    for request, of_sentence in zip(requests, kept, strict=True):
        completed = [complete(request, first) for first in of_sentence]
        results.append([hypothesis for (hypothesis,) in completed] if all(completed) else [])
    return results
