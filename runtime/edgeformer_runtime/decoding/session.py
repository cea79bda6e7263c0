"""What the decode loop needs of a model: start from sources, advance by one token. The loop knows no model family."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]


class DecoderState(Protocol):
    """The state of all rows between two steps. Stepping and selecting may use its memory again."""

    @property
    def nbytes(self) -> int:
        """Bytes held by all tensors."""

    def select(self, rows: IntArray, sentences: IntArray | None) -> Self:
        """Reorder, repeat and drop; the state before it is not to be used afterwards.

        Args:
            rows: for each row to go on with, the row it continues, ``(R',)``: equally many of each sentence.
            sentences: for each sentence to keep, its index now, ``(N',)``; none if all stay in place.
        """


StateT = TypeVar("StateT", bound=DecoderState)


class StepSession(Protocol[StateT]):
    """An encoder and a step decoder on some engine, with that engine's kind of state."""

    @property
    def rows_in_pairs(self) -> bool:
        """Whether rows are computed two at a time, and one that is left over by another kernel, which rounds otherwise.
        So that a sentence's output is the same in any company, greedy search then takes one sentence at a time, and
        beam search an even number of rows of each."""

    @property
    def special(self) -> SpecialTokens:
        """Token ids with a meaning."""

    @property
    def max_source_length(self) -> int:
        """Longest source in tokens, end token included."""

    @property
    def max_target_length(self) -> int:
        """Largest number of steps."""

    def start(self, source: IntArray, source_length: IntArray) -> StateT:
        """Encode sources ``(N, S)`` of true lengths ``(N,)``; the state has one row of each."""

    def step(self, token: IntArray, position: int, state: StateT) -> tuple[FloatArray, StateT]:
        """Advance every row by one token.

        Args:
            token: last token of each row, ``(R,)``, int64.
            position: index of that token in the target.
            state: state before the token; not to be used afterwards.

        Returns:
            Logits ``(R, V)``, float32, which the caller may change in place and the next step overwrites, and the state
            after the token.
        """

    def best_tokens(
        self, logits: FloatArray, log_probability: NDArray[np.float64], count: int
    ) -> tuple[NDArray[np.float64], IntArray, IntArray]:
        """The most probable extensions; see :func:`~edgeformer_runtime.decoding.best_tokens.best_tokens`."""


class AttentiveSession(StepSession[StateT], Protocol[StateT]):
    """A session that can also tell where the model looks."""

    def attend(self, token: IntArray, position: int, state: StateT) -> tuple[FloatArray, StateT]:
        """Advance every row by one token, as ``step`` does, and return attention in the place of logits.

        Returns:
            Weights of the source positions, ``(R, S)``, float32, zero on padding, and the state after the token.

        Raises:
            BundleError: the model has no attention weights.
        """


AnySession = StepSession[Any]
"""A session whose kind of state does not matter."""
