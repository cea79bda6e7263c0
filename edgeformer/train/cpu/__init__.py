"""Faster replacements for training on CPU."""

from __future__ import annotations

from torch import nn

from edgeformer.train.cpu.allocator import keep_freed_memory
from edgeformer.train.cpu.attention import use_training_attention
from edgeformer.train.cpu.dropout import use_fast_dropout


def prepare_for_cpu(model: nn.Module) -> None:
    """Replace what is slow to train on CPU. Weights, and what the model computes, do not change."""
    use_fast_dropout(model)
    use_training_attention(model)
    keep_freed_memory()
