"""Causal self-attention of a decoder layer and its cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from edgeformer.model.transformer.attention import MultiHeadAttention
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.relative_bias import RelativeBias
from edgeformer_runtime.contract import PAST_AXIS, ROWS, StateTensor

Past = tuple[Tensor, Tensor]
"""Keys ``(R, H, P, E)`` and values ``(R, H, P, F)`` of the previous positions; a kernel that writes in place receives
buffers with T instead of P."""
CacheKernel = Callable[[MultiHeadAttention, Tensor, Tensor, Tensor, Past, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""Adds a position to a cache and attends to the whole cache, from one new position of every row. The exporter replaces
torch's kernel with the engine's.

It gets the module, for its heads, widths and scale; the projected query and key, ``(R, 1, H * E)``, and value,
``(R, 1, H * F)``; the past; and what is added to the scaled scores of as many positions as there may be, the new one
last, ``(1, H, 1, L)``, if anything is. It returns the context, ``(R, 1, H * F)``, and keys and values that include the
new position."""


def growing_cache(
    attention: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, past: Past, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Append keys and values along P; see :data:`CacheKernel`."""
    key = key.view(-1, attention.heads, 1, attention.key_width)
    value = value.view(-1, attention.heads, 1, attention.value_width)
    # (R, H, P, E) -> (R, H, P + 1, E)
    keys, values = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
    if bias is not None:
        bias = bias[:, :, :, bias.shape[3] - keys.shape[2] :]
    return attention.attend(query, keys, values, bias=bias), keys, values


class CausalSelfAttention(nn.Module):
    """Every position attends to itself and all previous ones (Vaswani et al. 2017, section 3.2.3)."""

    cache: CacheKernel = staticmethod(growing_cache)

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self.relative_bias: RelativeBias | None = None
        if config.relative_bias is not None:
            self.relative_bias = RelativeBias(config.relative_bias, config.heads, config.max_target_length, causal=True)
        self.cache_names = f"self_key.{index}", f"self_value.{index}"

    def forward(self, x: Tensor) -> Tensor:
        """Compute all positions at once: ``(N, T, D) -> (N, T, D)``."""
        bias = None if self.relative_bias is None else self.relative_bias(x.shape[1])
        y: Tensor = self.attention(x, x, causal=True, bias=bias)
        return y

    def initial(self, sentences: int) -> dict[str, Tensor]:
        """Return no tensors: a cache starts empty."""
        del sentences
        return {}

    def step(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute one position of every row, ``(R, 1, D) -> (R, 1, D)``, and keys and values that include it."""
        attention = self.attention
        key_name, value_name = self.cache_names
        past = state[key_name], state[value_name]
        bias = None if self.relative_bias is None else self.relative_bias.of_last()
        context, keys, values = self.cache(attention, *attention.project(x), past, bias)
        return attention.output(context), {key_name: keys, value_name: values}

    def state_table(self) -> tuple[StateTensor, ...]:
        """Keys and values of all positions so far."""
        heads, widths = self.attention.heads, (self.attention.key_width, self.attention.value_width)
        return tuple(
            StateTensor(name=name, kind="cache", dtype="float32", axes=(ROWS, heads, PAST_AXIS, width))
            for name, width in zip(self.cache_names, widths, strict=True)
        )
