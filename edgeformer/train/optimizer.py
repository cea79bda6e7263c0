"""The optimizer."""

from __future__ import annotations

import torch
from torch import nn

from edgeformer.config import TrainConfig


def build_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019) that leaves biases and norms undecayed; without decay it is Adam.

    Decayed are matrices and other tensors of several axes, unless their names say that they are biases, as a table of
    biases by distance does.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        (decayed if parameter.ndim > 1 and "bias" not in name else plain).append(parameter)
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=config.learning_rate,
        betas=config.adam_betas,
        eps=config.adam_eps,
        fused=True,
    )
