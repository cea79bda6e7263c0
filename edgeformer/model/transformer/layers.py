"""Parts of the Transformer besides attention: embedding with positions, residual, feed-forward and encoder layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgeformer.model.transformer.attention import MultiHeadAttention
from edgeformer.model.transformer.config import TransformerConfig

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def sinusoids(length: int, width: int) -> Tensor:
    """Position table ``(length, width)`` with sines in even columns and cosines in odd ones (Vaswani et al. 2017,
    section 3.5)."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.stack((torch.sin(position * frequency), torch.cos(position * frequency)), dim=-1)
    return table.flatten(1).to(torch.float32)


class Embedding(nn.Module):
    """Token embedding plus position, for a whole sequence or a single position."""

    positions: Tensor

    def __init__(self, config: TransformerConfig, tokens: nn.Embedding, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(max_length, config.d_model) * config.d_model**-0.5)
        else:
            self.register_buffer("positions", sinusoids(max_length, config.d_model), persistent=False)

    def forward(self, token: Tensor) -> Tensor:
        """``(N, T) -> (N, T, D)``."""
        embedded: Tensor = self.dropout(self.tokens(token) * self.scale + self.positions[: token.shape[1]])
        return embedded

    def at(self, token: Tensor, position: Tensor) -> Tensor:
        """Embed tokens ``(R,)`` that are all at ``position`` ``()``; return ``(R, D)``."""
        embedded: Tensor = self.tokens(token) * self.scale + functional.embedding(position, self.positions)
        return embedded


class Residual(nn.Module):
    """The residual connection and LayerNorm around a sublayer, pre- or post-norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"
        self.dropout_after_norm = config.dropout_after_norm

    def before(self, x: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        normed: Tensor = self.norm(x) if self.pre else x
        return normed

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        """Add the output of the sublayer to the stream ``x``."""
        summed: Tensor
        if self.pre:
            summed = x + self.dropout(update)
        elif self.dropout_after_norm:
            summed = self.dropout(self.norm(x + update))
        else:
            summed = self.norm(x + self.dropout(update))
        return summed


class FeedForward(nn.Sequential):
    """Two linear layers with an activation between them, applied to each position."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(
            nn.Linear(config.d_model, config.d_ff),
            ACTIVATIONS[config.activation](),
            nn.Dropout(config.activation_dropout),
            nn.Linear(config.d_ff, config.d_model),
        )


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """``(N, S, D) -> (N, S, D)``."""
        inner = self.attention_residual.before(x)
        x = self.attention_residual.after(x, self.attention(inner, inner, padding=padding))
        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update)
