"""The interface of every model family: a teacher-forced forward pass, and an encoder and a step with explicit state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from edgeformer_runtime.contract import PAST_AXIS, ROWS, StateTensor

State = dict[str, Tensor]
"""The decoder's state, by the names in :meth:`EncoderDecoder.state_table`. A value: it is never modified in place."""


def empty_caches(table: Iterable[StateTensor], rows: int, device: torch.device) -> State:
    """Return the cache tensors of a state table before the first step."""
    return {
        entry.name: torch.empty(
            entry.shape({ROWS: rows, PAST_AXIS: 0}), dtype=getattr(torch, entry.dtype), device=device
        )
        for entry in table
        if entry.kind == "cache"
    }


class EncoderDecoder(nn.Module, ABC):
    """A sequence-to-sequence model that can be trained, exported and decoded step by step.

    Shapes: N sentences, K beams, R = N * K rows, S source length, T target length, V target vocabulary, D model width,
    H heads, E and F head widths of keys and values, Q queries; I input width and U units of a recurrent layer, C width
    of the encoder's outputs. Row ``r`` of a step belongs to sentence ``r // K``, where K is ``token.shape[0] // N``.
    """

    source_vocab_size: int
    """Number of source token ids."""
    target_vocab_size: int
    """Number of target token ids (V)."""
    max_source_length: int
    """Maximum source length in tokens, including the end token."""
    max_target_length: int
    """Maximum number of steps, including the one that yields the end token."""
    has_attention: bool = False
    """Whether the model attends to source positions and implements :meth:`step_with_attention`."""
    has_features: bool = False
    """Whether the logits of :meth:`forward` are ``projection(features(...))``. Training then computes the loss without
    holding all logits, which takes less time and memory. A class that overrides :meth:`forward` declares it again."""
    projection: nn.Linear
    """Maps :meth:`features` to logits, with or without a bias; needed by a model with ``has_features``."""

    def __init__(self) -> None:
        super().__init__()
        # Whoever calls the model: cuDNN would build a plan for each new shape, and nearly every batch and step has one.
        torch.backends.cuda.enable_cudnn_sdp(False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "forward" in vars(cls) and "has_features" not in vars(cls):
            cls.has_features = False

    @abstractmethod
    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute teacher-forced logits, for training and as the reference of every parity check.

        Args:
            source: token ids padded at the end, ``(N, S)``, int64.
            source_length: lengths without padding, ``(N,)``, int64.
            target: target ids beginning with the start token, ``(N, T)``, int64.

        Returns:
            Logits of the token that follows each target token, ``(N, T, V)``.
        """

    @abstractmethod
    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """Run the encoder once and return every constant and recurrent state tensor, with N rows each.

        Args:
            source: token ids padded at the end, ``(N, S)``, int64.
            source_length: lengths without padding, ``(N,)``, int64.
        """

    @abstractmethod
    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Advance every row by one token.

        Args:
            token: last token of each row, ``(R,)``, int64.
            position: index of that token in the target, ``()``, int64.
            state: every tensor of the state table.

        Returns:
            Logits of the next token, ``(R, V)``, and the new cache and recurrent tensors, without the constants.
        """

    @abstractmethod
    def state_table(self) -> tuple[StateTensor, ...]:
        """Describe every tensor of the state, in the order in which the exported graphs list them."""

    def features(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Return what :meth:`forward` projects to logits.

        A model with ``has_features`` overrides it; only training needs it.

        Args:
            source: as for :meth:`forward`.
            source_length: as for :meth:`forward`.
            target: as for :meth:`forward`.

        Returns:
            Features of each target position, ``(N, T, D)``, where D is the input width of ``projection``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no features")

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        """Like :meth:`step`, but also return the attention weight of each source position.

        Models with ``has_attention`` override it; only attention maps and alignments need it.

        Returns:
            The results of :meth:`step`, and weights ``(R, S)``, float32, which are zero on padding and sum to one.
        """
        raise NotImplementedError(f"{type(self).__name__} does not expose attention weights")
