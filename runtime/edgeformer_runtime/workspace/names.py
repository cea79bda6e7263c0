"""Models by name: bundles in folders where commands look for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.workspace.model import Model, bundles_in, read_model

VARIABLE = "EDGEFORMER_MODELS"
"""Environment variable with the folders of models, separated like those of ``PATH``."""
FOLDER = "models"
"""Folder of models if the variable is not set, in the current folder."""


def model_folders() -> list[Path]:
    """Folders that hold models."""
    return [Path(folder) for folder in os.environ.get(VARIABLE, FOLDER).split(os.pathsep) if folder]


def named_models(folders: Sequence[Path] | None = None) -> list[Model]:
    """All models by folder and name; of those with the same name, the first. A bundle that cannot be read is left out.

    Args:
        folders: folders of bundles; by default, :func:`model_folders`.
    """
    models: dict[str, Model] = {}
    for folder in model_folders() if folders is None else folders:
        for path in bundles_in(folder) if folder.is_dir() else ():
            if path.name not in models:
                try:
                    models[path.name] = read_model(path.name, path)
                except EdgeformerError:
                    continue
    return list(models.values())


def find_bundle(argument: str | Path) -> Path:
    """Return the folder of a bundle given as a path or, if there is no such path, as the name of a model."""
    path = Path(argument)
    if path.parent == Path() and path.name and not path.exists():
        for folder in model_folders():
            if (folder / path / MANIFEST_FILE).is_file():
                return folder / path
    return path
