"""How a training begins: a new run folder, from random weights or another run's, or a run that is resumed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import Recipe, apply_overrides, recipe_from_tree, with_warmup
from edgeformer.data.corpora import ParallelCorpus
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import CheckpointError, ConfigError, EdgeformerError
from edgeformer.families import is_shipped
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.check import check_model
from edgeformer.run.folder import CHECKPOINT_FOLDER, INITIAL_FILE, RESUME_FILE, Run, differing_keys
from edgeformer.run.info import RunInfo, library_versions
from edgeformer.train.stopping import TrainingLimit, limit_reached

PRETRAIN_CHECKS = "edgeformer.pretrain_checks"
"""Entry-point group of functions that check an untrained model, for example whether it can be exported. They raise an
``EdgeformerError`` if the model must be changed before training is worthwhile."""
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


def create_run(
    out: Path,
    recipe: Recipe,
    corpus: ParallelCorpus,
    init: Run | None = None,
    *,
    export_check: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> Run:
    """Create a run folder with tokenizers of the corpus, or with those and the weights of the run ``init``.

    A model that breaks the contract of model families, cannot be exported or is damaged leaves no folder behind.

    Raises:
        CheckpointError: ``init`` has no final model, or ``out`` is not empty.
        ConfigError: the model cannot be trained as it is.
        DataError: there is no text.
    """
    provenance = msgspec.to_builtins(corpus.provenance)
    recipe = with_warmup(recipe, recipe.train.warmup)  # which does not depend on limits that resuming may change
    if init is not None:
        return _start_from(init, out, recipe, provenance)
    source_tokenizer, target_tokenizer = train_tokenizers(corpus.train, recipe.tokenizer)
    source_vocab_size, target_vocab_size = source_tokenizer.get_vocab_size(), target_tokenizer.get_vocab_size()
    model = build_model(recipe, source_vocab_size, target_vocab_size)
    check_model(model)
    name = recipe.model["family"]
    if export_check and not is_shipped(name) and (checks := pretrain_checks()):
        report(f"Checking that `{name}` can be exported")
        for check in checks:
            try:
                check(model)
            except EdgeformerError as error:
                raise ConfigError(f"{error} To train this model all the same, give --no-export-check.") from error
    info = RunInfo(
        source_vocab_size=source_vocab_size,
        target_vocab_size=target_vocab_size,
        provenance=provenance,
        versions=library_versions(),
    )
    return Run.create(out, recipe, source_tokenizer, target_tokenizer, sample=(), info=info)


def pretrain_checks() -> list[Callable[[EncoderDecoder], None]]:
    """Load the checks of :data:`PRETRAIN_CHECKS`, without those whose own dependencies are not installed."""
    checks = []
    for entry in entry_points(group=PRETRAIN_CHECKS):
        try:
            checks.append(entry.load())
        except ModuleNotFoundError:  # the extra is not installed
            continue
    return checks


def fine_tuning_recipe(init: Run, recipe: Recipe | None, overrides: Sequence[str]) -> Recipe:
    """Return the recipe of a run that starts from another one.

    Model, tokenizer, languages and description are those of ``init``; text and training are those of ``recipe``.

    Args:
        init: the run to start from.
        recipe: says what to train on and how; ``None`` for the defaults of training and no text.
        overrides: ``section.key=value``, as for :func:`~edgeformer.config.load_recipe`.

    Raises:
        ConfigError: an override changes the model or the tokenizer, or the result is inconsistent.
    """
    tree = {**msgspec.to_builtins(init.recipe), "data": {}, "train": {}}
    if recipe is not None:
        tree |= {"data": msgspec.to_builtins(recipe.data), "train": msgspec.to_builtins(recipe.train)}
    apply_overrides(tree, overrides)
    result = recipe_from_tree(tree, f"with the model of {init.path}")
    for section in ("model", "tokenizer"):
        if getattr(result, section) != getattr(init.recipe, section):
            raise ConfigError(f"With --init, `{section}` is that of `{init.path}` and cannot be changed.")
    if not result.data.corpus and not result.data.train:
        raise ConfigError(
            "Say what to train on: give a recipe, or --set data.train='[\"pairs.tsv\"]', or --set data.corpus=NAME."
        )
    return result


def _start_from(init: Run, out: Path, recipe: Recipe, provenance: dict[str, Any]) -> Run:
    """Create a run folder that has the weights, tokenizers and text format of another run."""
    init.load_model()
    info = RunInfo(
        source_vocab_size=init.info.source_vocab_size,
        target_vocab_size=init.info.target_vocab_size,
        provenance={**provenance, "initial": init.info.provenance},
        versions=library_versions(),
        text=init.info.text,
        generation=init.info.generation,
        notes=init.info.notes,
    )
    source, target = (path.read_text("utf-8") for path in (init.source_tokenizer_path, init.target_tokenizer_path))

    def copy_weights(folder: Path) -> None:
        shutil.copyfile(init.model_path, folder / CHECKPOINT_FOLDER / INITIAL_FILE)

    return Run.create(out, recipe, source, target, sample=(), info=info, complete=copy_weights)


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


def limit_of_finished(run: Run, recipe: Recipe) -> TrainingLimit | None:
    """Return the limit that keeps a finished run from continuing; ``None`` if there is something left to train.

    Raises:
        CheckpointError: the run has made updates, but has no checkpoint to continue from.
    """
    info, path = run.info, run.checkpoints / RESUME_FILE
    if info.status == "finished" and run.model_path.is_file():
        limit = limit_reached(recipe.train, info.steps, info.minutes, info.validations)
        if limit is not None:
            return limit
    if info.steps and not path.is_file():
        raise CheckpointError(
            f"Run `{run.path}` cannot be resumed: it has made {info.steps:,} steps, but `{path}` is missing. "
            "Restore the file, or train again into a new folder."
        )
    return None
