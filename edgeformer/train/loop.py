"""The loop that trains: batches to gradients to updates, until there is a reason to stop; and its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from edgeformer.config import TrainConfig
from edgeformer.data.batches import Batch, BatchStream
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
        after_update: called between updates, never while a gradient is being accumulated. It checks the gradient, since
            only it can read the norm without waiting for a GPU.
    """
    module, optimizer = fabric.setup(objective, optimizer)
    parameters, on_gpu = list(module.parameters()), fabric.device.type == "cuda"
    module.train()
    with closing(_prepared(stream.start_at(step))) as batches:
        while True:
            loss = torch.zeros((), device=fabric.device)
            for index in range(config.accumulate):
                batch, inputs = next(batches)
                seed_dropout(config.seed, step * config.accumulate + index, fabric.global_rank)
                # DDP averages over the processes.
                per_token = fabric.world_size / batch.update_tokens
                padded = config.loss_mean == "padded_length"
                with fabric.no_backward_sync(module, enabled=index < config.accumulate - 1):
                    # From pinned memory, the host does not wait for copies.
                    total = module(*fabric.to_device([each.pin_memory() for each in inputs] if on_gpu else inputs))
                    fabric.backward(total * (fabric.world_size / batch.labels.shape[1] if padded else per_token))
                loss += total.detach() * per_token
            step += 1
            norm = nn.utils.clip_grad_norm_(parameters, config.clip_norm or float("inf"), foreach=True)
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


def _prepared(batches: Iterator[Batch]) -> Generator[tuple[Batch, list[Tensor]]]:
    """Yield batches with the inputs of :class:`~edgeformer.train.loss.Objective`; a thread prepares the next one."""

    def prepare() -> tuple[Batch, list[Tensor]]:
        batch = next(batches)
        arrays = (batch.source, batch.source_length, batch.target, batch.labels, np.flatnonzero(batch.labels >= 0))
        return batch, [torch.from_numpy(array) for array in arrays]

    with ThreadPoolExecutor(1) as worker:
        following = worker.submit(prepare)
        while True:
            prepared, following = following.result(), worker.submit(prepare)
            yield prepared


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
