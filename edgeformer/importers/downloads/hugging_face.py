"""Models of the Hugging Face Hub, by ``huggingface_hub``, which keeps them in its own cache."""

from __future__ import annotations

import re
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from edgeformer.errors import ConfigError, DataError
from edgeformer.importers.archive import sha256_of
from edgeformer.importers.downloads.downloaded import ADVICE, Downloaded
from edgeformer_runtime.files import locked_folder

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


def download_from_hub(name: str) -> Downloaded:
    """Fetch a repository at the commit that a revision is now.

    Args:
        name: ``ORGANIZATION/NAME``, optionally followed by ``@`` and a branch, tag or commit.

    Raises:
        ConfigError: the name is malformed.
        DataError: the repository does not exist, has no weights, or cannot be downloaded.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"`hf:{name}` is not a model name; give hf:ORGANIZATION/NAME, optionally with @REVISION.")
    repository, revision = match["repository"], match["revision"]
    before = _stored(repository)
    folder = Path(_snapshot(repository, revision))
    nbytes = _stored(repository) - before
    return Downloaded(folder, {"name": f"hf:{repository}", "revision": folder.name}, nbytes=nbytes)


def _blobs(repository: str) -> Path:
    """Where the cache has the files of a repository, each named after its hash."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    return Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model") / "blobs"


def _stored(repository: str) -> int:
    """Bytes that the cache has of a repository, downloads that were interrupted included."""
    return sum(file.stat().st_size for file in _blobs(repository).glob("*"))


def _fetch_large(repository: str, commit: str, name: str) -> None:
    """Download a file into the cache, or the rest of it; the hub's client begins again after an interruption.

    Small files, which the hub does not name by their SHA-256, are left to its client.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported on first use

    if isinstance(try_to_load_from_cache(repository, name, revision=commit), str):
        return
    url = hf_hub_url(repository, name, revision=commit)
    metadata = get_hf_file_metadata(url)
    blob = _blobs(repository) / str(metadata.etag)
    if not re.fullmatch("[0-9a-f]{64}", blob.name) or blob.is_file():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(f"{blob.name}.part")
    with locked_folder(blob.parent), part.open("ab") as file:
        http_get(url, file, resume_size=file.tell(), expected_size=metadata.size, headers=build_hf_headers())
    if sha256_of([part])[part.name] != blob.name:
        part.unlink()
        raise DataError("its SHA-256 is not what the hub states")
    part.replace(blob)


def _snapshot(repository: str, revision: str | None) -> str:
    """Fetch the files, into the folder that the cache has for the commit.

    Raises:
        DataError: the repository does not exist, has no weights, or cannot be downloaded.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(repository, revision=revision)
    except (RepositoryNotFoundError, RevisionNotFoundError):
        at = f" at `{revision}`" if revision else ""
        raise DataError(
            f"The Hugging Face Hub has no model `{repository}`{at}, or it needs a login: hf auth login."
        ) from None
    except Exception as error:  # of the HTTP library, which differs between versions
        for group in WEIGHTS:
            with suppress(LocalEntryNotFoundError):
                patterns = [*FILES, *group]
                folder = snapshot_download(
                    repository, revision=revision, allow_patterns=patterns, local_files_only=True
                )
                if (Path(folder) / group[0]).is_file():
                    return folder
        raise DataError(
            f"The Hugging Face Hub cannot be reached ({_first_line(error)}), and `{repository}` is not in its cache. "
            f"Check the network, or {ADVICE}."
        ) from None
    files = {file.rfilename for file in info.siblings or ()}
    weights = next((group for group in WEIGHTS if group[0] in files), None)
    if weights is None:
        raise DataError(f"`{repository}` has no weights that can be imported, such as model.safetensors.")
    try:
        for file in sorted(files):
            if any(fnmatch(file, pattern) for pattern in weights):
                _fetch_large(repository, str(info.sha), file)
        return snapshot_download(repository, revision=info.sha, allow_patterns=[*FILES, *weights])
    except Exception as error:  # of the HTTP library, too
        reason = _first_line(error).removesuffix(".")
        raise DataError(
            f"`{repository}` cannot be downloaded: {reason}. The same command continues, or {ADVICE}."
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
