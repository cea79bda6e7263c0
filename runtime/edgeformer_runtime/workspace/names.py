"""Models by name: bundles in folders where commands look for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgeformer_runtime.workspace.model import Model, bundles_in, is_named, read_models

VARIABLE = "EDGEFORMER_MODELS"
"""Environment variable with the folders of models, separated like those of ``PATH``."""
FOLDER = "models"
"""Folder of models if the variable is not set, in the current folder."""


def model_folders() -> list[Path]:
    """Folders that hold models."""
    return [Path(folder) for folder in os.environ.get(VARIABLE, FOLDER).split(os.pathsep) if folder]


def named_models(folders: Sequence[Path] | None = None) -> list[Model]:
    """All models by folder and name; of bundles with the same name, the first. One that cannot be read is left out.

    Args:
        folders: folders of bundles; by default, :func:`model_folders`.
    """
    paths: dict[str, Path] = {}
    for folder in model_folders() if folders is None else folders:
        for path in bundles_in(folder):
            paths.setdefault(path.name, path)
    return list(read_models(paths).values())


def find_bundle(argument: str | Path) -> Path:
    """Return the folder of a bundle given as a path or, if there is no such path, as the name of a model."""
    path = Path(argument)
    if path.parent == Path() and path.name and not path.exists():
        return next((folder / path for folder in model_folders() if is_named(folder / path)), path)
    return path
