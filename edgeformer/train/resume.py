"""Going on with an earlier training: what may change, and what must be there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

from edgeformer.config import Recipe
from edgeformer.errors import CheckpointError
from edgeformer.train.run import RESUME_FILE, Run, differing_keys
from edgeformer.train.supervisor import Supervisor, limit_reached

CHANGEABLE = frozenset(
    {
        "train.max_steps",
        "train.max_minutes",
        "train.cooldown_steps",
        "train.patience",
        "train.threads",
        "description",
    }
)
"""Keys of a recipe that a resumed run may change, since they tell how training ends; any other would make it another
training."""


def resumable_recipe(run: Run, recipe: Recipe | None) -> Recipe:
    """The recipe to go on with; the run's own if none is given.

    Raises:
        CheckpointError: another key than those of :data:`CHANGEABLE` differs.
    """
    if recipe is None:
        return run.recipe
    trees = (msgspec.to_builtins(one) for one in (run.recipe, recipe))
    if fixed := [key for key in differing_keys(*trees) if key not in CHANGEABLE]:
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed with another recipe; these keys differ: {', '.join(fixed)}. "
            "Leave RECIPE out, or train into a new folder."
        )
    return recipe


def limit_of_finished(run: Run, recipe: Recipe) -> str:
    """The limit that keeps a finished run from going on; empty if there is something left to do."""
    info = run.info
    if info.status != "finished" or not run.model_path.is_file():
        return ""
    return limit_reached(recipe.train, info.steps, info.minutes, info.validations)


def require_checkpoint(run: Run) -> None:
    """Make sure that a run which has made updates does not begin from nothing.

    Raises:
        CheckpointError: there is no checkpoint to resume from.
    """
    path = run.checkpoints / RESUME_FILE
    if run.info.steps and not path.is_file():
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed: it has made {run.info.steps:,} steps, but `{path}` is missing. "
            "Restore the file, or train again into a new folder."
        )


def restore(path: Path, supervisor: Supervisor) -> int:
    """Check a checkpoint and restore the counts; Lightning restores the rest. Returns its step, 0 if there is none.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not path.is_file():
        return 0
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        supervisor.load_state_dict(state["callbacks"][supervisor.state_key])
        step = int(state["global_step"])
    except Exception as error:  # torch.load raises RuntimeError, OSError, UnpicklingError and others
        raise CheckpointError(
            f"Checkpoint `{path}` is damaged: {str(error).splitlines()[0] if str(error) else error!r}. "
            "Restore it, or train again into a new folder."
        ) from None
    return step
