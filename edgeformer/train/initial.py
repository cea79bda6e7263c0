"""Fine-tuning: a run that starts from the model of another one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import Recipe, apply_overrides, recipe_from_tree
from edgeformer.errors import ConfigError
from edgeformer.run.folder import CHECKPOINT_FOLDER, INITIAL_FILE, Run
from edgeformer.run.info import RunInfo, library_versions


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


def start_from(init: Run, out: Path, recipe: Recipe, provenance: dict[str, Any]) -> Run:
    """Create a run folder that has the weights, tokenizers and text format of another run.

    Args:
        init: the run to start from.
        out: the new folder; missing or empty.
        recipe: the result of :func:`fine_tuning_recipe`.
        provenance: origin of the text.

    Raises:
        CheckpointError: ``init`` has no final model, or ``out`` is not empty.
    """
    init.load_model()  # a damaged model leaves no folder behind
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
