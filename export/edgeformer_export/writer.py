"""Writes a bundle atomically: into a temporary folder next to the target, which then takes the target's name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from edgeformer.errors import EdgeformerError
from edgeformer.staged_folder import staged_folder
from edgeformer_runtime.bundle.manifest import FileEntry, Manifest, decode_manifest, manifest_problems
from edgeformer_runtime.bundle.open import file_sha256, manifest_hash_line
from edgeformer_runtime.contract import MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE
from edgeformer_runtime.files import clear_stale


class ExportError(EdgeformerError):
    """A bundle cannot be written, or would not match its model."""


@contextlib.contextmanager
def atomic_folder(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Create a temporary folder that becomes ``out`` if the block ends without an error, and is removed otherwise.

    Raises:
        ExportError: ``out`` exists and may not be overwritten, or contains something other than a bundle.
    """
    require_free(out, overwrite=overwrite)
    with staged_folder(out, overwrite=overwrite) as folder:
        yield folder
        require_free(out, overwrite=overwrite)  # again, since this may have changed in the meantime


def require_free(out: Path, *, overwrite: bool) -> None:
    """Make sure that ``out`` does not exist, or is a bundle without other files that may be overwritten.

    Clears what dead processes left beside it.

    Raises:
        ExportError: ``out`` exists and is not such a bundle.
    """
    clear_stale(out.parent, out.name)
    if not out.exists():
        return
    if not overwrite:
        raise ExportError(f"`{out}` exists; choose another folder or give --overwrite.")
    own = {MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE}
    if out.is_dir():
        names = {path.name for path in out.iterdir()}
        with contextlib.suppress(EdgeformerError, OSError):
            own |= decode_manifest((out / MANIFEST_FILE).read_bytes()).files.keys()
        if names <= own:
            return
    raise ExportError(f"`{out}` contains something other than a bundle and is not overwritten; choose another folder.")


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Hash every file in the folder and write the manifest.

    Returns:
        The manifest with its list of files.

    Raises:
        ExportError: the manifest is inconsistent; lists every problem.
    """
    files = {
        path.name: FileEntry(size=path.stat().st_size, sha256=file_sha256(path))
        for path in sorted(folder.iterdir())
        if path.name not in {MANIFEST_FILE, MANIFEST_HASH_FILE}
    }
    manifest = msgspec.structs.replace(manifest, files=files)
    if problems := manifest_problems(manifest):
        raise ExportError("The bundle would be inconsistent: " + "; ".join(problems) + ".")
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (folder / MANIFEST_FILE).write_bytes(data)
    (folder / MANIFEST_HASH_FILE).write_bytes(manifest_hash_line(data))
    return manifest
