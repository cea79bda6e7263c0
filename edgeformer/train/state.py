"""What changes while training, its optimizer among it, and the checkpoint to resume from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch
from torch import nn

from edgeformer.config import TrainConfig
from edgeformer.errors import CheckpointError
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.info import Validation
from edgeformer_runtime.files import atomic_file


class TrainingProgress(msgspec.Struct, kw_only=True):
    """How far a training has come, over all its sessions."""

    step: int = 0
    """Updates made."""
    minutes: float = 0.0
    """Wall-clock time, validation included."""
    tokens: int = 0
    """True target tokens of all updates."""
    update_seconds: float = 0.0
    """Time of the updates, validation excluded."""
    position: float = 0.0
    """Position on the learning rate's schedule; the step, unless ``max_minutes`` come before ``max_steps``."""
    validations: list[Validation] = []
    """All validations, oldest first."""

    @property
    def tokens_per_second(self) -> float:
        """Mean speed of the updates."""
        return self.tokens / self.update_seconds if self.update_seconds else 0.0


@dataclass
class TrainingState:
    """All that changes while training. Random numbers are seeded per batch and need no state."""

    model: EncoderDecoder
    """The model that is being trained."""
    optimizer: torch.optim.Optimizer
    """Its optimizer."""
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    """Progress so far."""

    def save(self, path: Path) -> None:
        """Write a checkpoint of tensors and plain values, which loads without unpickling objects."""
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": msgspec.to_builtins(self.progress),
        }
        with atomic_file(path) as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:  # torch's own, raised on top of that of a full disk
                raise error.__context__ or error from None

    def restore(self, path: Path) -> None:
        """Continue where a checkpoint was written.

        Raises:
            CheckpointError: the file is damaged, or was written by an earlier version.
        """
        advice = "or train again into a new folder"
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
            if "progress" not in content:
                raise CheckpointError(
                    f"Checkpoint `{path}` was written by an earlier version of edgeformer; resume with that version, "
                    f"{advice}."
                )
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            self.progress = msgspec.convert(content["progress"], TrainingProgress)
        except CheckpointError:
            raise
        except Exception as error:  # torch.load raises RuntimeError, OSError, UnpicklingError and others
            cause = str(error).splitlines()[0] if str(error) else repr(error)
            raise CheckpointError(f"Checkpoint `{path}` is damaged: {cause}. Restore it, {advice}.") from None


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
