"""Causal self-attention of a decoder layer, with its growing cache."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from edgeformer.model.attention import MultiHeadAttention
from edgeformer.model.transformer_config import TransformerConfig
from edgeformer_runtime.contract import PAST_AXIS, ROWS, StateTensor


class CausalSelfAttention(nn.Module):
    """Every position attends to itself and to those before it (Vaswani et al. 2017, section 3.2.3)."""

    def __init__(self, config: TransformerConfig, index: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config)
        self._key_name, self._value_name = f"self_key.{index}", f"self_value.{index}"

    def forward(self, x: Tensor) -> Tensor:
        """All positions at once: ``(N, T, D) -> (N, T, D)``."""
        y: Tensor = self.attention(x, x, causal=True)
        return y

    def initial(self, sentences: int) -> dict[str, Tensor]:
        """Nothing: a cache starts empty."""
        del sentences
        return {}

    def step(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """One position of every row: ``(R, D) -> (R, D)``, and keys and values with this position appended."""
        attention = self.attention
        key, value = attention.project_step(x)
        # (R, H, P, E) -> (R, H, P + 1, E)
        keys, values = torch.cat((state[self._key_name], key), 2), torch.cat((state[self._value_name], value), 2)
        context = attention.attend(attention.project_query(x)[:, None], keys, values)[:, 0]
        return attention.output(context), {self._key_name: keys, self._value_name: values}

    def state_table(self) -> tuple[StateTensor, ...]:
        """Keys and values of all positions so far."""
        heads, widths = self.attention.heads, (self.attention.key_width, self.attention.value_width)
        return tuple(
            StateTensor(name=name, kind="cache", dtype="float32", axes=(ROWS, heads, PAST_AXIS, width))
            for name, width in zip((self._key_name, self._value_name), widths, strict=True)
        )
