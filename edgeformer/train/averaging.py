"""Checkpoint averaging (Vaswani et al. 2017, section 6.1), over the last checkpoints or those with the lowest loss: the
final model of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import torch

from edgeformer.config import TrainConfig
from edgeformer.errors import TrainingError
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.run.info import Validation
from edgeformer.run.weights import load_weights, save_weights
from edgeformer.train.validation import Validator

_NAME = re.compile(r"step-(\d{8})\.safetensors")


def weights_path(folder: Path, step: int) -> Path:
    """Return the file of the weights after an update."""
    return folder / f"step-{step:08d}.safetensors"


def best_steps(validations: Iterable[Validation], count: int) -> list[int]:
    """Return the steps of the ``count`` validations with the lowest loss, best first; ties go to the later one."""
    ranked = sorted(validations, key=lambda validation: (validation.loss, -validation.step))
    return [validation.step for validation in ranked[:count]]


def averaged_steps(validations: Sequence[Validation], config: TrainConfig) -> list[int]:
    """Return the steps of the checkpoints that the recipe would average if training ended now."""
    if config.average_of == "last":
        return [validation.step for validation in validations[-config.average :]]
    return best_steps(validations, config.average)


def keep_only(folder: Path, steps: Iterable[int]) -> None:
    """Delete the weights of all updates but these."""
    kept = set(steps)
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and int(match[1]) not in kept:
            path.unlink()


def load_average(model: EncoderDecoder, paths: Sequence[Path]) -> None:
    """Load the mean of one or more checkpoints into a model; tensors of integers are taken from the first.

    Raises:
        CheckpointError: a file is missing, damaged, or belongs to another model.
    """
    total = _state(load_weights(model, paths[0]))
    for path in paths[1:]:
        for name, tensor in _state(load_weights(model, path)).items():
            if tensor.is_floating_point():
                total[name] += tensor
    mean = {
        name: (tensor / len(paths)).to(torch.float32) if tensor.is_floating_point() else tensor
        for name, tensor in total.items()
    }
    model.load_state_dict(mean)


def _state(model: EncoderDecoder) -> dict[str, torch.Tensor]:
    """Copy the weights to double precision, so that the mean does not depend on their order."""
    return {
        name: tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor.clone()
        for name, tensor in model.state_dict().items()
    }


def write_final_model(
    run: Run, model: EncoderDecoder, validator: Validator, validations: Sequence[Validation]
) -> Validation:
    """Average the recipe's checkpoints, write the model and what ``run.json`` says about it, and return its figures.

    If the mean has a higher loss than the best of its checkpoints alone, as in a training that was stopped while it
    still learned fast, that one is written. ``model`` has the weights afterwards.

    Raises:
        TrainingError: there is no checkpoint.
    """
    config = run.recipe.train
    steps = averaged_steps(validations, config)
    if not steps:
        raise TrainingError("Training ended before its first validation, so there is no checkpoint to average.")

    load_average(model, [weights_path(run.checkpoints, step) for step in steps])
    final = validator(model, step=max(steps), minutes=validations[-1].minutes)
    best = min((validation for validation in validations if validation.step in steps), key=lambda each: each.loss)
    if len(steps) > 1 and final.loss > best.loss:
        load_average(model, [weights_path(run.checkpoints, best.step)])
        steps, final = [best.step], msgspec.structs.replace(best, minutes=final.minutes)
    save_weights(model, run.model_path)
    run.update(final=final, averaged_steps=tuple(sorted(steps)))
    return final
