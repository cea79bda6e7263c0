"""Multi-head attention: projections, and a kernel that the exporter can replace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeformer.model.transformer.config import TransformerConfig


class Scoring(NamedTuple):
    """How the scores of queries and keys become weights: ``softmax(scale * query @ keyᵀ + bias)``."""

    scale: float
    """Factor of the scores."""
    padding: Tensor | None = None
    """``(N, S)``, int32, 1 for a token and 0 for padding; ``None`` if there is no padding."""
    causal: bool = False
    """Restrict query ``i`` to keys ``0 … i``."""
    dropout: float = 0.0
    """Dropout probability of the weights."""
    bias: Tensor | None = None
    """Added to the scaled scores, ``(1, H, Q, S)``; ``None`` if there is no bias."""


AttentionKernel = Callable[[Tensor, Tensor, Tensor, Scoring], Tensor]
"""From queries ``(N, Q, H * E)``, keys ``(N, H, S, E)`` and values ``(N, H, S, F)`` to contexts ``(N, Q, H * F)``; each
query attends to all keys except padding. The exporter replaces torch's kernel with the engine's."""


def torch_attention(query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """Torch's own kernel, safe in half precision and, without a bias, for rows of padding only, whose context is
    zero."""
    # (N, Q, H * E) -> (N, H, Q, E)
    query = query.view(*query.shape[:2], key.shape[1], key.shape[3]).transpose(1, 2)
    mask = None if scoring.padding is None else scoring.padding[:, None, None, :].to(torch.bool)
    bias, causal = scoring.bias, scoring.causal
    if bias is not None:
        if causal:
            later = torch.ones(bias.shape[2:], dtype=torch.bool, device=bias.device).triu_(1)
            bias, causal = bias.masked_fill(later, -torch.inf), False
        mask = bias.to(query.dtype) if mask is None else bias.to(query.dtype).masked_fill(~mask, -torch.inf)
    context = F.scaled_dot_product_attention(query, key, value, mask, scoring.dropout, causal, scale=scoring.scale)
    # (N, H, Q, F) -> (N, Q, H * F)
    return context.transpose(1, 2).flatten(2)


def attention_probabilities(query: Tensor, key: Tensor, scoring: Scoring) -> Tensor:
    """Attention weights ``(N, H, Q, S)``, zero on padding, without a causal mask; see :data:`AttentionKernel`."""
    # (N, Q, H * E) -> (N, H, Q, E)
    query = query.view(*query.shape[:2], key.shape[1], key.shape[3]).transpose(1, 2)
    scores = torch.matmul(query * scoring.scale, key.transpose(2, 3))
    if scoring.bias is not None:
        scores = scores + scoring.bias
    if scoring.padding is not None:
        scores = scores.masked_fill(scoring.padding[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
    return scores.softmax(-1)


class MultiHeadAttention(nn.Module):
    """Attention with H heads whose key and value widths are free (Vaswani et al. 2017, section 3.2).

    Keys and values are projected separately from queries, so that they can be computed once and cached.
    """

    kernel: AttentionKernel = staticmethod(torch_attention)

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.key_width = config.key_width
        self.value_width = config.value_width
        self.shared = config.share_head_projection
        self.dropout = config.attention_dropout
        divisors = {"d_k": self.key_width, "d_model": config.d_model, "none": 1}
        self.scale = 1 / math.sqrt(divisors[config.attention_scale])
        in_width = config.d_model // config.heads if self.shared else config.d_model
        heads = 1 if self.shared else config.heads
        self.query = nn.Linear(in_width, heads * self.key_width, bias=config.attention_bias)
        self.key = nn.Linear(in_width, heads * self.key_width, bias=config.attention_bias)
        self.value = nn.Linear(in_width, heads * self.value_width, bias=config.attention_bias)
        self.output = nn.Linear(config.heads * self.value_width, config.d_model, bias=config.attention_output_bias)

    def project_query(self, x: Tensor) -> Tensor:
        """Queries: ``(…, D) -> (…, H * E)``."""
        return self._project(self.query, x)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys ``(N, H, S, E)`` and values ``(N, H, S, F)`` of a memory ``(N, S, D)``."""
        # (N, S, H * E) -> (N, S, H, E) -> (N, H, S, E)
        shape = (*memory.shape[:2], self.heads)
        key = self._project(self.key, memory).view(*shape, self.key_width).transpose(1, 2)
        value = self._project(self.value, memory).view(*shape, self.value_width).transpose(1, 2)
        return key, value

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``(…, H * E)``, keys ``(…, H * E)`` and values ``(…, H * F)`` of the same positions ``(…, D)``."""
        return self._project(self.query, x), self._project(self.key, x), self._project(self.value, x)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        padding: Tensor | None = None,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Context of projected queries ``(N, Q, H * E)``, before the output projection: ``(N, Q, H * F)``."""
        dropout = self.dropout if self.training else 0.0
        return self.kernel(query, key, value, Scoring(self.scale, padding, causal, dropout, bias))

    def weights(self, query: Tensor, key: Tensor, padding: Tensor) -> Tensor:
        """Attention weights of :meth:`attend`, averaged over the heads.

        Args:
            query: projected queries, ``(N, Q, H * E)``.
            key: ``(N, H, S, E)``.
            padding: ``(N, S)``, int32, 1 for a token and 0 for padding.

        Returns:
            ``(N, Q, S)``, float32, zero on padding.
        """
        return attention_probabilities(query.float(), key.float(), Scoring(self.scale, padding)).mean(1)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        *,
        padding: Tensor | None = None,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attend from ``x`` ``(N, Q, D)`` to ``memory`` ``(N, S, D)``; return ``(N, Q, D)``."""
        key, value = self.project_memory(memory)
        context = self.attend(self.project_query(x), key, value, padding=padding, causal=causal, bias=bias)
        attended: Tensor = self.output(context)
        return attended

    def _project(self, linear: nn.Linear, x: Tensor) -> Tensor:
        if self.shared:
            # (…, H * E) -> (…, H, E) -> (…, H * E)
            projected: Tensor = linear(x.view(*x.shape[:-1], self.heads, -1)).flatten(-2)
        else:
            projected = linear(x)
        return projected
