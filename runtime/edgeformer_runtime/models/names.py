"""Models by name: bundles in folders where commands look for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.bundle.signature import Key
from edgeformer_runtime.contract import GOLDEN_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE, WEIGHTS_FILE
from edgeformer_runtime.errors import BundleError, ConfigError, OptionError
from edgeformer_runtime.files import temporary
from edgeformer_runtime.models.model import Model, is_named, read_model

VARIABLE = "EDGEFORMER_MODELS"
"""Environment variable with folders of models, such as shared ones, separated like those of ``PATH``."""
FOLDER = "models"
"""Folder of models in the current folder."""
_BUNDLE_FILES = frozenset({GOLDEN_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE, WEIGHTS_FILE})


def user_folder() -> Path:
    """The user's own models, in the platform's folder for data; ``edgeformer get`` puts them there."""
    from platformdirs import user_data_path  # only names need it

    return user_data_path("edgeformer", appauthor=False) / FOLDER


def model_folders() -> list[Path]:
    """Folders that hold models, the first to be searched first: those of the variable, ``models``, the user's own."""
    folders = [Path(folder) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
    folders.append(Path(FOLDER))
    with suppress(ModuleNotFoundError):  # a device may have only the libraries that translate
        folders.append(user_folder())
    unique: dict[Path, Path] = {}
    for folder in folders:
        unique.setdefault(folder.resolve(), folder)
    return list(unique.values())


def named_models(folders: Sequence[Path] | None = None) -> list[Model]:
    """All models by folder and name; see :func:`list_models`."""
    return list_models(folders)[0]


def list_models(folders: Sequence[Path] | None = None) -> tuple[list[Model], list[str]]:
    """All models by folder and name, of those with the same name the first; and which other folders beside them are
    none, and why: a sentence each. Hidden folders and those without any file of a bundle are not mentioned.

    Args:
        folders: folders of bundles; by default, :func:`model_folders`.
    """
    first: dict[str, Path] = {}
    models, reasons = list[Model](), list[str]()
    for folder in model_folders() if folders is None else folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith(".") or not path.is_dir() or not _has_bundle_file(path):
                continue
            problem = f"it has no `{MANIFEST_FILE}`."
            if is_named(path) and (same := first.setdefault(path.name, path)) != path:
                problem = f"`{same}` has the same name."
            elif is_named(path):
                try:
                    models.append(read_model(path.name, path))
                    continue
                except BundleError as error:
                    problem = str(error)
            reasons.append(f"`{path}` is skipped: {problem}")
    return models, reasons


def _has_bundle_file(folder: Path) -> bool:
    """Whether a folder is a bundle or what is left of one; a README alone does not tell."""
    return any(
        path.name in _BUNDLE_FILES or path.suffix == ".onnx" or "tokenizer" in path.name for path in folder.iterdir()
    )


def find_bundle(argument: str | Path) -> Path:
    """Return the folder of a bundle given as a path or, if there is no such path, as the name of a model."""
    path = Path(argument)
    if path.parent == Path() and path.name and not path.exists():
        return next((folder / path for folder in model_folders() if is_named(folder / path)), path)
    return path


def resolve_bundle(bundle: str | Path | Bundle, trusted_keys: Sequence[Key] | None) -> Bundle:
    """Open a bundle given as a path or as the name of a model, unless it is open already.

    Raises:
        BundleError, ConfigError: see :func:`~edgeformer_runtime.bundle.open.open_bundle`.
        OptionError: the bundle is of another type, or opened although keys are given.
    """
    if isinstance(bundle, str | Path):
        return open_bundle(find_bundle(bundle), trusted_keys=trusted_keys)
    if not isinstance(bundle, Bundle):
        raise OptionError(f"`bundle` must be a path or an opened bundle, but is {bundle!r}.")
    if trusted_keys is not None:
        raise OptionError("`trusted_keys` has no effect on an opened bundle; pass it to `open_bundle`.")
    return bundle


def remove_model(name: str, folders: Sequence[Path] = ()) -> Path:
    """Remove a model from the user's own, or from these folders, as a whole or not at all; return its folder.

    Translators that have it open continue.

    Raises:
        ConfigError: there is no such model.
    """
    folders = folders or [user_folder()]
    for folder in folders:
        path = folder / name
        if path.parent == folder and is_named(path):
            with temporary(path, create=path.rename):
                return path
    found = find_bundle(name)
    advice = "see `edgeformer models`"
    if found != Path(name):
        advice = f"it is in `{found.parent}`: edgeformer models {found.parent} --remove {name}"
    raise ConfigError(f"There is no model `{name}` in {', '.join(f'`{folder}`' for folder in folders)}; {advice}.")
