"""Models by name: bundles in folders where commands look for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.workspace.model import Model, bundles_in, is_named, read_model, read_models

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


def left_out(folders: Sequence[Path] | None = None) -> list[str]:
    """Which folders beside the models are none, and why: a sentence each. Hidden ones and files are not mentioned.

    Args:
        folders: see :func:`named_models`.
    """
    first: dict[str, Path] = {}
    reasons = []
    for folder in model_folders() if folders is None else folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith(".") or not path.is_dir():
                continue
            problem = f"it has no `{MANIFEST_FILE}`."
            if is_named(path):
                same = first.setdefault(path.name, path)
                problem = _problem(path) if same == path else f"`{same}` has the same name."
            if problem:
                reasons.append(f"`{path}` is left out: {problem}")
    return reasons


def _problem(path: Path) -> str:
    """Why a bundle is none of the models, or empty."""
    try:
        read_model(path.name, path)
    except BundleError as error:
        return str(error)
    return ""


def find_bundle(argument: str | Path) -> Path:
    """Return the folder of a bundle given as a path or, if there is no such path, as the name of a model."""
    path = Path(argument)
    if path.parent == Path() and path.name and not path.exists():
        return next((folder / path for folder in model_folders() if is_named(folder / path)), path)
    return path
