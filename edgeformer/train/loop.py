"""The loop that trains: batches to gradients to updates, until there is a reason to stop; and its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from edgeformer.config import TrainConfig
from edgeformer.data.batches import Batch, BatchStream
from edgeformer.errors import TrainingError
from edgeformer.train.stopping import StopReason


class Update(NamedTuple):
    """One update of the weights, as reported after it."""

    step: int
    """Its number, starting at 1."""
    tokens: int
    """True target tokens, over all processes."""
    loss: Tensor
    """Smoothed loss per token of this process's batches, in nats, ``()``."""
    gradient_norm: Tensor
    """Norm of the gradient before clipping, ``()``."""
    learning_rate: float
    """Learning rate that the optimizer used."""


def run_updates(
    fabric: Fabric,
    objective: nn.Module,
    optimizer: torch.optim.Optimizer,
    stream: BatchStream,
    config: TrainConfig,
    *,
    learning_rate: Callable[[int], float],
    step: int,
    after_update: Callable[[Update], StopReason | None],
) -> StopReason:
    """Make updates until ``after_update`` returns a reason to stop.

    Args:
        fabric: puts batches on the device and joins the gradients of several processes.
        objective: returns the summed loss of a batch.
        optimizer: updates the parameters of ``objective``.
        stream: batches of this process.
        config: section ``[train]``.
        learning_rate: returns the learning rate of an update by its number; called once for each, in order.
        step: updates made before.
        after_update: called between updates, never while a gradient is being accumulated.

    Raises:
        TrainingError: the gradient is infinite or not a number. The weights are those before that update.
    """
    module, optimizer = fabric.setup(objective, optimizer)
    parameters = list(module.parameters())
    batches = stream.start_at(step)
    module.train()
    while True:
        loss = torch.zeros((), device=fabric.device)
        for index in range(config.accumulate):
            batch = next(batches)
            seed_dropout(config.seed, step * config.accumulate + index, fabric.global_rank)
            with fabric.no_backward_sync(module, enabled=index < config.accumulate - 1):
                # Per true token of the whole update; DDP averages over the processes.
                share = module(*_tensors(fabric, batch)) * (fabric.world_size / batch.update_tokens)
                fabric.backward(share)
            loss += share.detach()
        step += 1
        norm = nn.utils.clip_grad_norm_(parameters, config.clip_norm or float("inf"), foreach=True)
        if not torch.isfinite(norm):
            raise TrainingError(
                f"The gradient became infinite or not a number in step {step} (loss {loss.item():.4g})."
            )
        rate = learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        reason = after_update(Update(step, batch.update_tokens, loss, norm, rate))
        if reason is not None:
            return reason


def seed_dropout(seed: int, batch: int, rank: int) -> None:
    """Seed torch for one batch of one process, so that a resumed run needs no random state."""
    torch.manual_seed(int(np.random.SeedSequence((seed, batch, rank)).generate_state(1)[0]))


def _tensors(fabric: Fabric, batch: Batch) -> tuple[Tensor, ...]:
    """Inputs of :class:`~edgeformer.train.loss.Objective` on the device."""
    arrays = (batch.source, batch.source_length, batch.target, batch.labels)
    return tuple(fabric.to_device(torch.from_numpy(array)) for array in arrays)


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
