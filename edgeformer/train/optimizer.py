"""The optimizer and its learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn

from edgeformer.config import TrainConfig


def build_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019) that leaves biases and norms undecayed; without decay it is Adam."""
    parameters = list(module.parameters())
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    plain = [parameter for parameter in parameters if parameter.ndim <= 1]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_eps,
        fused=True,
    )


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """Return the learning rate of one update.

    ============ ==================================================================================================
    inverse_sqrt linear to ``learning_rate`` at ``warmup_steps``, then ``learning_rate * sqrt(warmup_steps / step)``
    noam         ``learning_rate * d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)``
                 (Vaswani et al. 2017, section 5.3)
    ============ ==================================================================================================

    Over the last ``cooldown_steps`` of ``max_steps``, both are multiplied by a factor that falls linearly from 1 to 0.

    Args:
        step: number of the update, starting at 1.
        config: section ``[train]``.
        d_model: width of the model, for ``noam``.
    """
    warmup = config.warmup_steps
    shape = min(step / warmup, math.sqrt(warmup / step))
    peak = config.learning_rate
    if config.schedule == "noam":
        # min(step ** -0.5, step * warmup ** -1.5) == warmup ** -0.5 * shape
        peak *= 1 / math.sqrt(d_model * warmup)
    if config.cooldown_steps:
        peak *= min(1.0, max(0, config.max_steps - step + 1) / (config.cooldown_steps + 1))
    return peak * shape
