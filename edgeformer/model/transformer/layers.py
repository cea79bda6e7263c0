"""Parts of the Transformer besides attention: embedding with positions, residual, feed-forward and encoder layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgeformer.model.transformer.attention import MultiHeadAttention
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.relative_bias import RelativeBias


class SigmoidGELU(nn.Module):
    """``x * sigmoid(1.702 * x)``, an approximation of GELU (Hendrycks and Gimpel 2016, section 2)."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each element."""
        return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "gelu_sigmoid": SigmoidGELU,
    "silu": nn.SiLU,
}


def norm_layer(config: TransformerConfig) -> nn.Module:
    """A norm of the last axis, as configured."""
    norm = nn.LayerNorm if config.norm_type == "layer" else nn.RMSNorm
    return norm(config.d_model, eps=config.norm_epsilon)


def sinusoids(length: int, width: int) -> Tensor:
    """Position table ``(length, width)`` with sines in even columns and cosines in odd ones (Vaswani et al. 2017,
    section 3.5)."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.stack((torch.sin(position * frequency), torch.cos(position * frequency)), dim=-1)
    return table.flatten(1).to(torch.float32)


class Embedding(nn.Module):
    """Token embedding plus position, for a whole sequence or a single position."""

    positions: Tensor | None

    def __init__(self, config: TransformerConfig, tokens: nn.Embedding, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = config.embedding_scale
        self.norm = norm_layer(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(max_length, config.d_model) * config.d_model**-0.5)
        elif config.positions == "none":
            self.positions = None
        else:
            persistent = config.positions == "table"
            self.register_buffer("positions", sinusoids(max_length, config.d_model), persistent=persistent)

    def forward(self, token: Tensor) -> Tensor:
        """``(N, T) -> (N, T, D)``."""
        embedded = self._scaled(token)
        if self.positions is not None:
            embedded = embedded + self.positions[: token.shape[1]]
        normed: Tensor = self.dropout(self.norm(embedded))
        return normed

    def at(self, token: Tensor, position: Tensor) -> Tensor:
        """Embed tokens ``(R,)`` that are all at ``position`` ``()``; return ``(R, D)``."""
        embedded = self._scaled(token)
        if self.positions is not None:
            embedded = embedded + functional.embedding(position, self.positions)
        normed: Tensor = self.norm(embedded)
        return normed

    def _scaled(self, token: Tensor) -> Tensor:
        embedded: Tensor = self.tokens(token)
        return embedded if self.scale == 1 else embedded * self.scale


class Residual(nn.Module):
    """The residual connection and the norm around a sublayer, pre- or post-norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = norm_layer(config)
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


class GatedLinear(nn.Module):
    """Two linear layers, one of which is activated and multiplied by the other: ``(…, in) -> (…, out)``."""

    def __init__(self, in_width: int, out_width: int, activation: nn.Module, *, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(in_width, out_width, bias=bias)
        self.linear = nn.Linear(in_width, out_width, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each position."""
        gated: Tensor = self.activation(self.gate(x)) * self.linear(x)
        return gated


class FeedForward(nn.Sequential):
    """Two linear layers with an activation between them, or a gated one and a linear one, applied to each position."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        activation, bias = ACTIVATIONS[config.activation](), config.ffn_bias
        if config.ffn_gated:
            inner = [GatedLinear(config.d_model, width, activation, bias=bias), nn.Identity()]
        else:
            inner = [nn.Linear(config.d_model, width, bias=bias), activation]
        super().__init__(*inner, nn.Dropout(config.activation_dropout), nn.Linear(width, config.d_model, bias=bias))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, or self-attention alone."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.attention_only = config.encoder_attention_only
        if not self.attention_only:
            self.attention_residual = Residual(config)
            self.feed_forward, self.feed_forward_residual = FeedForward(config, config.d_ff), Residual(config)
        self.relative_bias: RelativeBias | None = None
        if config.relative_bias is not None:
            self.relative_bias = RelativeBias(
                config.relative_bias, config.heads, config.max_source_length, causal=False
            )

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """``(N, S, D) -> (N, S, D)``."""
        bias = None if self.relative_bias is None else self.relative_bias(x.shape[1])
        if self.attention_only:
            attended: Tensor = self.attention(x, x, padding=padding, bias=bias)
            return attended
        inner = self.attention_residual.before(x)
        x = self.attention_residual.after(x, self.attention(inner, inner, padding=padding, bias=bias))
        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update)
