"""Resuming an earlier training: what may change, and what must be there."""

from __future__ import annotations

import msgspec

from edgeformer.config import Recipe, with_warmup
from edgeformer.errors import CheckpointError
from edgeformer.run.folder import RESUME_FILE, Run, differing_keys
from edgeformer.train.stopping import LimitReached, limit_reached

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
"""Keys of a recipe that may change when a run is resumed, since they say how training ends. Changing any other key
would make it a different training."""


def resumable_recipe(run: Run, recipe: Recipe | None) -> Recipe:
    """Return the recipe to continue with: the given one, or the run's own if it is ``None``.

    A warm-up by default stays as long as it was, whatever the limits are now.

    Raises:
        CheckpointError: a key that is not in :data:`CHANGEABLE` differs, or the run was started by a version that
            altered its text.
    """
    if run.former_keys:
        keys = " and ".join(f"`data.{key}`" for key in run.former_keys)
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed: it was trained with {keys}, which this version does not have. Resume "
            "with the version that started it, or train into a new folder."
        )
    if recipe is None:
        return run.recipe
    if recipe.train.warmup_steps is None:
        recipe = with_warmup(recipe, run.recipe.train.warmup)
    before, now = msgspec.to_builtins(run.recipe), msgspec.to_builtins(recipe)
    if fixed := [key for key in differing_keys(before, now) if key not in CHANGEABLE]:
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed with another recipe; these keys differ: {', '.join(fixed)}. "
            "Keep their values, or train into a new folder."
        )
    return recipe


def limit_of_finished(run: Run, recipe: Recipe) -> LimitReached | None:
    """Return the limit that keeps a finished run from continuing; ``None`` if there is something left to train."""
    info = run.info
    if info.status != "finished" or not run.model_path.is_file():
        return None
    return limit_reached(recipe.train, info.steps, info.minutes, info.validations)


def require_checkpoint(run: Run) -> None:
    """Make sure that a run that has made updates does not start from scratch.

    Raises:
        CheckpointError: there is no checkpoint to resume from.
    """
    path = run.checkpoints / RESUME_FILE
    if run.info.steps and not path.is_file():
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed: it has made {run.info.steps:,} steps, but `{path}` is missing. "
            "Restore the file, or train again into a new folder."
        )
