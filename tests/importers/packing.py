"""Models in the packages that they are published in."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path


def pack(folder: Path, suffix: str) -> Path:
    """Pack a model; return its path.

    Args:
        folder: the model.
        suffix: of a zip file with the folder, which is written beside it; or ``gz``, which replaces each file.
    """
    if suffix == "gz":
        for file in sorted(folder.iterdir()):
            with gzip.open(folder / f"{file.name}.gz", "wb", 1) as stream:
                stream.write(file.read_bytes())
            file.unlink()
        return folder
    path = folder.with_suffix(f".{suffix}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, f"{folder.name}/{file.relative_to(folder)}")
    return path
