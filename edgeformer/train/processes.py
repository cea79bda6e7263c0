"""The processes that train together, and their devices."""

from __future__ import annotations

import logging
import os
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from edgeformer.config import TrainConfig
from edgeformer.errors import TrainingError
from edgeformer.train.gpu import HostCopy
from edgeformer.train.stopping import StopReason
from edgeformer_runtime.engines.cpus import cpu_facts, cpu_flags

_PATIENCE = timedelta(days=30)
"""Processes wait for the first one, which prepares the text and validates alone; torchrun ends them if one fails."""


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
        strategy=DDPStrategy(timeout=_PATIENCE) if processes > 1 else "auto",
        devices=local_processes,
        num_nodes=processes // local_processes,
        precision="bf16-mixed" if uses_bf16(config) else "32-true",
    )
    fabric.launch()
    return fabric


def wait_for_all(fabric: Fabric) -> None:
    """Wait until every process is here, for as long as the first one needs to prepare the text.

    Raises:
        TrainingError: a process has ended, or cannot be reached.
    """
    try:
        fabric.barrier()
    except RuntimeError as error:
        cause = str(error).partition("\n")[0]
        raise TrainingError(f"Another process has ended or cannot be reached; see its output ({cause}).") from None


class StopVote:
    """Decides whether all processes stop, an update after one of them wants to, so that none waits for its GPU."""

    _wanted: HostCopy | None = None

    def __call__(self, fabric: Fabric, reason: StopReason | None) -> StopReason | None:
        """Return the same reason on every process: that of the first one that had one at the call before."""
        if fabric.world_size == 1:
            return reason
        wants = torch.full((), float(reason is not None), device=fabric.device)
        torch.distributed.all_reduce(wants)
        before, self._wanted = self._wanted, HostCopy(wants)
        if before is None or not before():
            return None
        reasons: list[StopReason | None] = [None] * fabric.world_size
        torch.distributed.all_gather_object(reasons, reason)
        return next(entry for entry in reasons if entry is not None)
