"""Stability of translations: the change of logits that changes no token.

Integer kernels round differently on other processors, so an example with near ties could give different tokens there
although nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from edgeformer_runtime.search.forced_steps import forced_batch, forced_steps
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import longest_target
from edgeformer_runtime.search.session import (
    BestTokens,
    DecoderState,
    FloatArray,
    IntArray,
    StepSession,
)

SEEDS = 4
"""Number of searches with different noise that must all give the same output."""
BATCH = 32


class NoisyState(DecoderState):
    """A wrapper of a state that adds noise to its logits.

    Args:
        state: the state to wrap.
        amplitude: the noise is uniform in ±``amplitude``.
        generator: source of the noise.
    """

    def __init__(self, state: DecoderState, amplitude: np.float32, generator: np.random.Generator) -> None:
        self._state, self._amplitude, self._generator = state, amplitude, generator

    @property
    def nbytes(self) -> int:
        """Size of all state tensors, in bytes."""
        return self._state.nbytes

    def step(self, token: IntArray) -> FloatArray:
        """See :meth:`~edgeformer_runtime.search.session.DecoderState.step`."""
        logits = self._state.step(token)
        noise = self._generator.random(logits.shape, np.float32)
        noisy: FloatArray = logits + self._amplitude * (2 * noise - 1)
        return noisy

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """See :meth:`~edgeformer_runtime.search.session.DecoderState.select`."""
        self._state.select(rows, sentences)


class NoisySession(StepSession):
    """A wrapper of a session that adds noise to its logits.

    Args:
        session: the session to wrap.
        amplitude: the noise is uniform in ±``amplitude``.
        seed: seed of the noise.
    """

    def __init__(self, session: StepSession, amplitude: float, seed: int) -> None:
        self._session = session
        self._amplitude, self._generator = np.float32(amplitude), np.random.default_rng(seed)
        self.special, self.row_multiple = session.special, session.row_multiple
        self.max_source_length, self.max_target_length = session.max_source_length, session.max_target_length

    @property
    def best_tokens(self) -> BestTokens:
        """See :attr:`~edgeformer_runtime.search.session.StepSession.best_tokens`."""
        return self._session.best_tokens

    def start(self, source: IntArray, source_length: IntArray) -> NoisyState:
        """See :meth:`~edgeformer_runtime.search.session.StepSession.start`."""
        return NoisyState(self._session.start(source, source_length), self._amplitude, self._generator)


def greedy_margins(
    session: StepSession, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> list[float]:
    """Compute the smallest difference between the best and second-best logits over all steps of each greedy output.

    Args:
        session: the model.
        sources: source ids with end token.
        outputs: greedy outputs for the sources, without special tokens.
    """
    special, given = session.special, len(session.special.prefix)
    never = [*special.suppress, *special.forbid]
    margins: list[float] = []
    pairs = [(source, output[: longest_target(session) - 1]) for source, output in zip(sources, outputs, strict=True)]
    for start in range(0, len(pairs), BATCH):
        batch = forced_batch(pairs[start : start + BATCH], special)
        smallest = np.full(len(batch.target), np.inf)
        steps = forced_steps(session.start(batch.source, batch.source_length), batch.target)
        for step, logits in islice(enumerate(steps), given, None):
            logits[:, never] = -np.inf
            best = np.partition(logits, -2, axis=1)[:, -2:]
            gap = np.where(step < batch.target_length, best[:, 1] - best[:, 0], np.inf)
            smallest = np.minimum(smallest, gap)
        margins += smallest.tolist()
    return margins


def survives(
    session: StepSession,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    options: DecodeOptions,
    margin: float,
) -> list[bool]:
    """Return for each output whether a search still gives it when the difference between any two logits changes by up
    to ``margin``, in :data:`SEEDS` trials.

    Args:
        session: the model.
        sources: source ids with end token.
        outputs: token ids of the best hypothesis for each source.
        options: decoding options of the search.
        margin: twice the amplitude of the noise.
    """
    alive = [True] * len(sources)
    for seed in range(SEEDS):
        rest = [index for index, survived in enumerate(alive) if survived]
        noisy = NoisySession(session, margin / 2, seed)
        outcomes = decode(noisy, [sources[index] for index in rest], replace(options, n_best=1))
        for index, (best, *_) in zip(rest, outcomes, strict=True):
            alive[index] = best.ids == tuple(outputs[index])
    return alive


def beam_margins(
    session: StepSession,
    sources: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    options: DecodeOptions,
    margins: Iterable[float],
) -> list[float]:
    """Return the largest of ``margins`` at which each output :func:`survives`; 0 if it survives at none of them."""
    result = [0.0] * len(sources)
    for margin in sorted(margins, reverse=True):
        rest = [index for index, largest in enumerate(result) if not largest]
        chosen, expected = [sources[index] for index in rest], [outputs[index] for index in rest]
        for index, alive in zip(rest, survives(session, chosen, expected, options, margin), strict=True):
            result[index] = margin if alive else 0.0
    return result
