"""Models of the Hugging Face Hub, by ``huggingface_hub``, which keeps them in its own cache."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from edgeformer.errors import ConfigError, DataError
from edgeformer.importers.downloads.model_download import ADVICE, ModelDownload

FILES = (
    "*.json",
    "*.model",
    "*.spm",
    "*.txt",
    "*.yml",
    "README.md",
)
"""Configurations and tokenizers, whatever the format; weights are chosen among :data:`WEIGHTS`."""
WEIGHTS = (
    ("model.safetensors",),
    ("model.safetensors.index.json", "model-*.safetensors"),
    ("pytorch_model.bin",),
    ("pytorch_model.bin.index.json", "pytorch_model-*.bin"),
    ("model.bin",),
    ("model.npz",),
)
"""Files of weights, by preference; the first of each must be there."""
_NAME = re.compile(r"(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")


def download_from_hub(name: str) -> ModelDownload:
    """Fetch a repository at the commit that a revision is now.

    Args:
        name: ``ORGANIZATION/NAME``, optionally followed by ``@`` and a branch, tag or commit.

    Raises:
        ConfigError: the name is malformed.
        DataError: the repository does not exist, has no weights, or cannot be downloaded.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"`hf:{name}` is not a model name; give hf:ORGANIZATION/NAME, optionally with @REVISION.")
    repository, revision = match["repository"], match["revision"]
    try:
        info = HfApi().model_info(repository, revision=revision)
    except (RepositoryNotFoundError, RevisionNotFoundError):
        at = f" at `{revision}`" if revision else ""
        raise DataError(
            f"The Hugging Face Hub has no model `{repository}`{at}, or it needs a login: hf auth login."
        ) from None
    except Exception as error:  # of the HTTP library, which differs between versions
        if (cached := _cached(repository, revision)) is not None:
            return _downloaded(repository, cached)
        raise DataError(
            f"The Hugging Face Hub cannot be reached ({_first_line(error)}), and `{repository}` is not in its cache. "
            f"Check the network, or {ADVICE}."
        ) from None
    files = {file.rfilename for file in info.siblings or ()}
    weights = next((group for group in WEIGHTS if group[0] in files), None)
    if weights is None:
        raise DataError(f"`{repository}` has no weights that can be imported, such as model.safetensors.")
    try:
        folder = snapshot_download(repository, revision=info.sha, allow_patterns=[*FILES, *weights])
    except Exception as error:  # of the HTTP library, too
        reason = _first_line(error).removesuffix(".")
        raise DataError(f"`{repository}` cannot be downloaded: {reason}. Try again, or {ADVICE}.") from None
    return _downloaded(repository, folder)


def _cached(repository: str, revision: str | None) -> str | None:
    """The folder that the hub's client has for a revision, if it has its weights."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    for weights in WEIGHTS:
        with suppress(LocalEntryNotFoundError):
            patterns = [*FILES, *weights]
            folder = snapshot_download(repository, revision=revision, allow_patterns=patterns, local_files_only=True)
            if (Path(folder) / weights[0]).is_file():
                return folder
    return None


def _downloaded(repository: str, folder: str) -> ModelDownload:
    """A snapshot of the hub, whose folder is named after the commit."""
    return ModelDownload(Path(folder), {"name": f"hf:{repository}", "revision": Path(folder).name})


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
