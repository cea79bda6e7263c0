"""The processes that train together, and their devices."""

from __future__ import annotations

import logging
import os

import torch
from lightning_fabric import Fabric

from edgeformer.config import TrainConfig
from edgeformer.train.gpu import LaterRead
from edgeformer.train.stopping import StopReason
from edgeformer_runtime.engine.cpus import cpu_facts, cpu_flags


def process_rank() -> int:
    """Number of this process as ``torchrun`` gives it. The first one, 0, alone writes and reports."""
    return int(os.environ.get("RANK", 0))


def world_size() -> int:
    """Number of processes that ``torchrun`` has started."""
    return int(os.environ.get("WORLD_SIZE", 1))


def uses_bf16(config: TrainConfig) -> bool:
    """Return whether training computes in bf16: if the recipe asks for it and the device can.

    A processor without such instructions emulates them, which takes some fifteen times as long as fp32; GPUs before
    Ampere emulate them, too.
    """
    if config.precision != "bf16":
        return False
    return torch.cuda.is_bf16_supported(including_emulation=False) if torch.cuda.is_available() else cpu_has_bf16()


def cpu_has_bf16() -> bool:
    """Return whether the processor has instructions for bf16; ``True`` if the system does not tell."""
    flags = cpu_flags(cpu_facts() or {})
    return not flags or bool({"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"} & flags)


def launch(config: TrainConfig) -> Fabric:
    """Connect the processes and choose the device of each: a GPU if there is one, else the CPU."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    processes = world_size()
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu",
        strategy="ddp" if processes > 1 else "auto",
        devices=local_processes,
        num_nodes=processes // local_processes,
        precision="bf16-mixed" if uses_bf16(config) else "32-true",
    )
    fabric.launch()
    return fabric


class Agreement:
    """What the processes agree on: how long they have trained, and whether to stop.

    Each update reduces both over the processes, and reads what the update before has reduced, so that no process waits
    for its GPU.

    Args:
        fabric: connects the processes.
        minutes: training time before.
    """

    def __init__(self, fabric: Fabric, minutes: float) -> None:
        self.minutes = minutes
        """Training time by the update before, the same on every process."""
        self._fabric = fabric
        self._reduced: LaterRead | None = None

    def __call__(self, reason: StopReason | None, minutes: float) -> StopReason | None:
        """Return the same reason to stop on every process, that of the first one that has one by the update before."""
        if self._fabric.world_size == 1:
            self.minutes = minutes
            return reason
        numbers = (float(reason is not None), minutes)
        # Filled on the device: a copy from the host would wait for it.
        filled = [torch.full((), number, dtype=torch.float64, device=self._fabric.device) for number in numbers]
        values = torch.stack(filled)
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
        before, self._reduced = self._reduced, LaterRead(values)
        if before is None:
            return None
        stops, self.minutes = before()
        if not stops:
            return None
        reasons: list[StopReason | None] = [None] * self._fabric.world_size
        torch.distributed.all_gather_object(reasons, reason)
        return next(entry for entry in reasons if entry is not None)
