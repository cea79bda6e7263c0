"""What the decode loop needs from a model: encode the sources, then advance a state token by token.

The loop is independent of model family and engine. State changes in place, and only through its own methods::

    state = session.start(source, source_length)    # encoder, once
    logits = state.step(token)                      # decoder, once per token
    state.select(rows, sentences)                   # reorder, repeat or drop rows

An engine subclasses both classes, and overrides the defaults where it can do more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.search.best_tokens import best_tokens

if TYPE_CHECKING:
    from edgeformer_runtime.search.loop import Counters
    from edgeformer_runtime.search.options import DecodeOptions
    from edgeformer_runtime.search.requests import Request
    from edgeformer_runtime.search.search import Hypothesis, SentenceCallback

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BestTokens = Callable[[FloatArray, NDArray[np.float64], int], tuple[NDArray[np.float64], IntArray, IntArray]]
"""Finds the most probable extensions; see :func:`~edgeformer_runtime.search.best_tokens.best_tokens`."""


class DecoderState(ABC):
    """The decoder's state for one batch of R rows. It changes in place; earlier states cannot be restored."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of all state tensors, in bytes."""

    @abstractmethod
    def step(self, token: IntArray) -> FloatArray:
        """Advance every row by one token, in place.

        Args:
            token: last token of each row, ``(R,)``, int64; the start token in the first step.

        Returns:
            Logits of the next token, ``(R, V)``, float32. The caller may overwrite them, and the next step does:
            copy values that are needed longer.
        """

    @abstractmethod
    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Reorder, repeat and drop rows, in place.

        Args:
            rows: for each row to keep, the row that it continues, ``(R',)``; the same number for each sentence.
            sentences: for each sentence to keep, its current index, ``(N',)``; ``None`` keeps all in place.
        """

    def attend(self, token: IntArray) -> FloatArray:
        """Advance every row by one token as :meth:`step` does, but return attention weights instead of logits.

        Returns:
            Weight of each source position, ``(R, S)``, float32, zero on padding.

        Raises:
            BundleError: the model has no attention weights.
        """
        raise BundleError("The model has no attention weights.")

    def bound(self, steps: int) -> None:  # noqa: B027  # a state without caches of a fixed size needs no bound
        """Make room for ``steps`` steps, rather than for all that the model can make; called before the first one."""


class StepSession(ABC):
    """An encoder and a step decoder on some engine."""

    special: SpecialTokens
    """Ids of the special tokens, and what every target begins with."""
    max_source_length: int
    """Maximum number of source tokens, end token included."""
    max_target_length: int
    """Maximum number of steps, those of the tokens that every target begins with included; see
    :func:`~edgeformer_runtime.search.requests.longest_target`."""
    row_multiple: int = 1
    """Number of rows that the engine's matrix kernels compute together: 1 or 2.

    If it is 2, a leftover row goes through another kernel, which rounds differently. To keep each sentence independent
    of the other sentences in the batch, beam search then gives every sentence an even number of rows, and greedy search
    decodes one sentence at a time.
    """

    @abstractmethod
    def start(self, source: IntArray, source_length: IntArray) -> DecoderState:
        """Run the encoder.

        Args:
            source: token ids padded at the end, ``(N, S)``, int64.
            source_length: true lengths, ``(N,)``, int64.

        Returns:
            A state with one row per sentence, before the first step.
        """

    def start_search(self, source: IntArray, source_length: IntArray) -> DecoderState:
        """Run the encoder for a search.

        Logits may be ``-inf`` for tokens that a sentence is unlikely to need. These depend on the sentence only.
        """
        return self.start(source, source_length)

    def search(
        self, requests: Sequence[Request], options: DecodeOptions, counters: Counters, done: SentenceCallback | None
    ) -> list[list[Hypothesis]] | None:
        """Decode one batch to the end by the rules of the decode loop, if the engine can.

        Args:
            requests: at least one; their prefixes have the same length.
            options: how to search.
            counters: counters to add times and counts to.
            done: called with sentences that are complete before the others are.

        Returns:
            The hypotheses of each request; ``None`` if the options need the loop.
        """
        return None

    def with_prefix(self, prefix: tuple[int, ...]) -> Self:
        """Return a session of the same model whose targets begin with other tokens, those after the start token. It
        shares the model: closing one closes both."""
        session = object.__new__(type(self))
        vars(session).update(vars(self), special=replace(self.special, prefix=prefix))
        return session

    def open_attention(self) -> Self:
        """Return a session of the same model whose states return attention weights; what they need is opened now.

        Raises:
            BundleError: the model has no attention weights.
        """
        return self

    @property
    def best_tokens(self) -> BestTokens:
        """Finds the most probable extensions in one search; see
        :func:`~edgeformer_runtime.search.best_tokens.best_tokens`."""
        return best_tokens

    def batch_bytes(self, sentences: int, rows: int, source_length: int, length: int) -> int:
        """Estimate the size of the state and the logits of a batch, which is refused before it runs if it is too large.

        Args:
            sentences: N.
            rows: R.
            source_length: S, padding included.
            length: number of steps.

        Returns:
            Size in bytes after the last step; 0 if it is not limited.
        """
        return 0
