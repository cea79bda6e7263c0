"""What the decode loop needs from a model: encode the sources, then advance a state token by token.

The loop is independent of model family and engine. State changes in place, and only through its own methods::

    state = session.start(source, source_length)    # encoder, once
    logits = state.step(token)                      # decoder, once per token
    state.select(rows, sentences)                   # reorder, repeat or drop rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens

if TYPE_CHECKING:
    from edgeformer_runtime.search.loop import Counters
    from edgeformer_runtime.search.options import DecodeOptions
    from edgeformer_runtime.search.requests import Request
    from edgeformer_runtime.search.search import Done, Hypothesis

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BestTokens = Callable[[FloatArray, NDArray[np.float64], int], tuple[NDArray[np.float64], IntArray, IntArray]]
"""Finds the most probable extensions; see :func:`~edgeformer_runtime.search.best_tokens.best_tokens`."""


class DecoderState(Protocol):
    """The decoder's state for one batch of R rows. It changes in place; earlier states cannot be restored."""

    @property
    def nbytes(self) -> int:
        """Size of all state tensors, in bytes."""

    def step(self, token: IntArray) -> FloatArray:
        """Advance every row by one token, in place.

        Args:
            token: last token of each row, ``(R,)``, int64; the start token in the first step.

        Returns:
            Logits of the next token, ``(R, V)``, float32. The caller may overwrite them, and the next step does:
            copy values that are needed longer.
        """

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Reorder, repeat and drop rows, in place.

        Args:
            rows: for each row to keep, the row that it continues, ``(R',)``; the same number for each sentence.
            sentences: for each sentence to keep, its current index, ``(N',)``; ``None`` keeps all in place.
        """


class ListedState(DecoderState, Protocol):
    """A state whose logits may be of some tokens only."""

    @property
    def vocab_size(self) -> int:
        """Entries of the target vocabulary (V)."""

    @property
    def listed(self) -> IntArray | None:
        """Tokens that the logits are of, in ascending order, ``(C,)``: those of a step are ``(R, C)``, and ``-inf`` for
        tokens that a row's sentence may not use. ``None`` if the logits are of the whole vocabulary."""


class AttentiveState(DecoderState, Protocol):
    """A state whose model can also return attention weights."""

    def attend(self, token: IntArray) -> FloatArray:
        """Advance every row by one token as :meth:`step` does, but return attention weights instead of logits.

        Returns:
            Weight of each source position, ``(R, S)``, float32, zero on padding.

        Raises:
            BundleError: the model has no attention weights.
        """


class StepSession(Protocol):
    """An encoder and a step decoder on some engine."""

    @property
    def row_multiple(self) -> int:
        """Number of rows that the engine's matrix kernels compute together: 1 or 2.

        If it is 2, a leftover row goes through another kernel, which rounds differently. To keep each sentence
        independent of the other sentences in the batch, beam search then gives every sentence an even number of rows,
        and greedy search decodes one sentence at a time.
        """

    @property
    def special(self) -> SpecialTokens:
        """Ids of the special tokens, and what every target begins with."""

    def with_prefix(self, prefix: tuple[int, ...]) -> Self:
        """Return a session of the same model whose targets begin with other tokens, those after the start token. It
        shares the model: closing one closes both."""

    @property
    def max_source_length(self) -> int:
        """Maximum number of source tokens, end token included."""

    @property
    def max_target_length(self) -> int:
        """Maximum number of steps, those of the tokens that every target begins with included; see
        :func:`longest_target`."""

    def start(self, source: IntArray, source_length: IntArray) -> DecoderState:
        """Run the encoder.

        Args:
            source: token ids padded at the end, ``(N, S)``, int64.
            source_length: true lengths, ``(N,)``, int64.

        Returns:
            A state with one row per sentence, before the first step.
        """

    @property
    def best_tokens(self) -> BestTokens:
        """Finds the most probable extensions in one search; see
        :func:`~edgeformer_runtime.search.best_tokens.best_tokens`."""


@runtime_checkable
class SizedSession(Protocol):
    """A session that knows how much memory a batch takes; :func:`~edgeformer_runtime.search.loop.decode` then refuses
    batches that are too large before it runs them."""

    def batch_bytes(self, sentences: int, rows: int, source_length: int, length: int) -> int:
        """Estimate the size of the state and the logits of a batch.

        Args:
            sentences: N.
            rows: R.
            source_length: S, padding included.
            length: number of steps.

        Returns:
            Size in bytes after the last step.
        """


@runtime_checkable
class SearchSession(Protocol):
    """A session that can restrict a search to tokens that the source makes likely."""

    def start_search(self, source: IntArray, source_length: IntArray) -> ListedState:
        """Run the encoder as :meth:`StepSession.start` does, for a search.

        The tokens of a sentence depend on the sentence only. Tokens that are never generated are not among them.
        """


@runtime_checkable
class WholeSearchSession(Protocol):
    """A session whose engine searches by itself, by the rules of the decode loop."""

    def search(
        self, requests: Sequence[Request], options: DecodeOptions, counters: Counters, done: Done | None
    ) -> list[list[Hypothesis]] | None:
        """Decode one batch to the end; ``None`` if the options need the loop.

        Args:
            requests: at least one; their prefixes have the same length.
            options: how to search.
            counters: counters to add times and counts to.
            done: called with sentences that are complete before the others are.
        """


class AttentiveSession(StepSession, Protocol):
    """A session whose states can also return attention weights."""

    def start(self, source: IntArray, source_length: IntArray) -> AttentiveState:
        """See :meth:`StepSession.start`."""


def bound_steps(state: DecoderState, steps: int) -> None:
    """Tell a state before its first step how many it will make at most, if it makes room for them in advance."""
    if bound := getattr(state, "bound", None):
        bound(steps)


def longest_target(session: StepSession) -> int:
    """Maximum number of tokens of a target, end token included, without those that every target begins with."""
    return session.max_target_length - len(session.special.prefix)
