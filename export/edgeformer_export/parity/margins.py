"""How far a translation is from another one: what its logits may differ by before a token changes.

Integer kernels of another processor round differently, so an example whose decisions are near ties would give other
tokens there though nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import AnySession, FloatArray, IntArray

SEEDS = 4
"""Searches with different noise that must all give the same output."""
BATCH = 32


class NoisySession:
    """A session to whose logits noise is added; all else is that of the session.

    Args:
        session: the model.
        amplitude: noise is spread evenly between minus and plus this.
        seed: of the noise.
    """

    def __init__(self, session: AnySession, amplitude: float, seed: int) -> None:
        self._session, self._amplitude, self._generator = session, np.float32(amplitude), np.random.default_rng(seed)
        self.special, self.rows_in_pairs = session.special, session.rows_in_pairs
        self.max_source_length, self.max_target_length = session.max_source_length, session.max_target_length
        self.start, self.best_tokens = session.start, session.best_tokens

    def step(self, token: IntArray, position: int, state: Any) -> tuple[FloatArray, Any]:
        """See :class:`~edgeformer_runtime.decoding.session.StepSession`."""
        logits, state = self._session.step(token, position, state)
        noise = self._generator.random(logits.shape, np.float32)
        return logits + self._amplitude * (2 * noise - 1), state


def greedy_margins(
    session: AnySession, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> list[float]:
    """Smallest distance between the best and the second logit over the steps of each greedy output.

    Args:
        session: the model.
        sources: source ids with end token.
        outputs: what greedy search gave for them, without special tokens.
    """
    special, margins = session.special, []
    for start in range(0, len(sources), BATCH):
        block = [[*ids, special.eos][: session.max_target_length] for ids in outputs[start : start + BATCH]]
        source, source_length = pad(sources[start : start + BATCH], special.pad)
        target, length = pad(block, special.pad)
        state, token = session.start(source, source_length), np.full(len(block), special.bos)
        smallest = np.full(len(block), np.inf)
        for step in range(target.shape[1]):
            logits, state = session.step(token, step, state)
            logits[:, [special.pad, special.bos]] = -np.inf
            best = np.partition(logits, -2, axis=1)[:, -2:]
            gap = np.where(step < length, best[:, 1] - best[:, 0], np.inf)
            smallest, token = np.minimum(smallest, gap), np.ascontiguousarray(target[:, step])
        margins += smallest.tolist()
    return margins


def survives(
    session: AnySession,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    options: DecodeOptions,
    margin: float,
) -> list[bool]:
    """Whether a search gives each output again whenever any two logits are moved against each other by up to
    ``margin``, in :data:`SEEDS` trials.

    Args:
        session: the model.
        sources: source ids with end token.
        outputs: token ids of the best hypothesis of each.
        options: the search.
        margin: twice the amplitude of the noise.
    """
    alive = [True] * len(sources)
    for seed in range(SEEDS):
        rest = [index for index, one in enumerate(alive) if one]
        noisy = NoisySession(session, margin / 2, seed)
        found = decode(noisy, [sources[index] for index in rest], replace(options, n_best=1))
        for index, (best, *_) in zip(rest, found, strict=True):
            alive[index] = best.ids == tuple(outputs[index])
    return alive


def beam_margins(
    session: AnySession,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    options: DecodeOptions,
    margins: Iterable[float],
) -> list[float]:
    """The largest of ``margins`` at which each output :func:`survives`; 0 if it does at none."""
    result = [0.0] * len(sources)
    for margin in sorted(margins, reverse=True):
        rest = [index for index, found in enumerate(result) if not found]
        chosen, given = [sources[index] for index in rest], [outputs[index] for index in rest]
        for index, alive in zip(rest, survives(session, chosen, given, options, margin), strict=True):
            result[index] = margin if alive else 0.0
    return result
