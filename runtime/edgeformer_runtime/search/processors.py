"""Logits processors: each changes the logits of the next token in place, given the tokens generated so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import FloatArray, IntArray

LogitsProcessor = Callable[[IntArray, FloatArray], None]
"""Changes the logits of the next token in place, ``(R, V)``, float32, given the tokens of each live row so far,
``(R, T)``, without those that every target begins with."""


class Suppress:
    """Never generate these tokens."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = sorted(set(tokens))

    def __call__(self, history: IntArray, logits: FloatArray) -> None:
        """See :data:`LogitsProcessor`."""
        for token in self.tokens:
            logits[:, token] = -np.inf


class SuppressSequences:
    """Never generate these sequences of tokens."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.sequences = sequences

    def __call__(self, history: IntArray, logits: FloatArray) -> None:
        """See :data:`LogitsProcessor`."""
        length = history.shape[1]
        for *begin, last in self.sequences:
            if len(begin) <= length:
                matches = (history[:, length - len(begin) :] == begin).all(axis=1)
                logits[matches, last] = -np.inf


class MinLength:
    """Forbid the end token until a minimum number of tokens is reached."""

    def __init__(self, eos: int, min_length: int) -> None:
        self.eos, self.min_length = eos, min_length

    def __call__(self, history: IntArray, logits: FloatArray) -> None:
        """See :data:`LogitsProcessor`."""
        if history.shape[1] < self.min_length:
            logits[:, self.eos] = -np.inf


class RepetitionPenalty:
    """Make previously generated tokens less likely (Keskar et al. 2019, "CTRL", section 4.1)."""

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, history: IntArray, logits: FloatArray) -> None:
        """See :data:`LogitsProcessor`."""
        seen = np.take_along_axis(logits, history, axis=1)
        np.put_along_axis(logits, history, np.where(seen > 0, seen / self.penalty, seen * self.penalty), axis=1)


class NoRepeatNgram:
    """Forbid any token that would repeat a previously generated n-gram (Paulus et al. 2017, section 2.5)."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, history: IntArray, logits: FloatArray) -> None:
        """See :data:`LogitsProcessor`."""
        length = history.shape[1]
        if length < self.size:
            return
        # (R, windows, size): every n-gram so far
        ngrams = np.lib.stride_tricks.sliding_window_view(history, self.size, axis=1)
        prefix = history[:, None, length - self.size + 1 :]
        row, window = np.nonzero((ngrams[:, :, :-1] == prefix).all(axis=2))
        logits[row, ngrams[row, window, -1]] = -np.inf


def build_processors(options: DecodeOptions, special: SpecialTokens) -> list[LogitsProcessor]:
    """Create the processors that the options require; tokens that ``special`` suppresses are always suppressed.

    Args:
        options: verified options, whose tokens are ids.
        special: ids of the special tokens.
    """
    processors: list[LogitsProcessor] = []
    if options.repetition_penalty != 1.0:
        processors.append(RepetitionPenalty(options.repetition_penalty))
    if options.no_repeat_ngram_size:
        processors.append(NoRepeatNgram(options.no_repeat_ngram_size))
    if options.min_length:
        processors.append(MinLength(special.eos, options.min_length))
    if options.suppress_sequences:
        processors.append(SuppressSequences(cast(Sequence[Sequence[int]], options.suppress_sequences)))
    never = {*special.suppress, *cast(Sequence[int], options.suppress_tokens)}
    if options.disable_unk and special.unk is not None:
        never.add(special.unk)
    if never:
        processors.append(Suppress(sorted(never)))
    return processors
