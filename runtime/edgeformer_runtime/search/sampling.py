"""Random sampling of tokens. Each sentence has random numbers of its own, so that no sample depends on the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeformer_runtime.search.best_tokens import largest
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.session import FloatArray, IntArray


class Sampler:
    """Samples the next token of each row.

    Args:
        requests: the sentence of each row.
        options: how to sample.
    """

    def __init__(self, requests: Sequence[Request], options: DecodeOptions) -> None:
        self._options = options
        self._generators = [
            np.random.default_rng([options.seed, request.sample, len(request.source), *request.source, *request.prefix])
            for request in requests
        ]

    def __call__(self, logits: FloatArray) -> IntArray:
        """Sample a token for each row of logits ``(R, V)``, whose largest value must be finite."""
        return np.array([self._sample(row, rng) for row, rng in zip(logits, self._generators, strict=True)], np.int64)

    def keep(self, rows: IntArray) -> None:
        """Drop all rows but these."""
        self._generators = [self._generators[row] for row in rows]

    def _sample(self, logits: FloatArray, rng: np.random.Generator) -> int:
        options = self._options
        # (1, C) candidates; in descending order only where the order matters
        if options.sampling_topk or options.sampling_topp < 1:
            values, tokens = largest(logits[None], options.sampling_topk or len(logits))
        else:
            values, tokens = logits[None], np.arange(len(logits))[None]
        with np.errstate(over="ignore"):  # a low temperature leaves infinitely improbable tokens
            scaled = (values[0].astype(np.float64) - values.max()) / options.sampling_temperature
        total = np.cumsum(np.exp(scaled))
        if options.sampling_topp < 1:
            total = total[: np.searchsorted(total, options.sampling_topp * total[-1]) + 1]
        # The first candidate at which the sum exceeds the random number; one of probability 0 does not add to the sum.
        place = np.searchsorted(total, rng.random() * total[-1], side="right")
        return int(tokens[0, min(place, np.searchsorted(total, total[-1]))])
