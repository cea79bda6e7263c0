"""Folders that are written beside their place and then renamed: runs, bundles and prepared data."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeformer_runtime.files import OUTGOING, UNSUPPORTED, make_folder, naming, sync, temporary

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def staged_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder beside ``path``; it is renamed to ``path`` if the block succeeds, and removed otherwise.

    The files are on the disk before the folder gets its name, so that a crash or a power failure leaves either the old
    or the new folder under it. If an old folder is replaced and names cannot be exchanged (Linux can, on most file
    systems), a crash between two renames leaves neither; the old one gets its name back when the name is next used.

    Args:
        path: folder to create; must be missing or empty unless ``overwrite`` is set. See :func:`can_be_replaced`.
        overwrite: replace whatever is at ``path``.

    Raises:
        OSError: ``path`` exists, is not an empty folder, and ``overwrite`` is not set.
    """
    make_folder(path.parent)
    with naming(path), temporary(path, create=lambda name: name.mkdir(mode=0o700)) as name:
        incoming, outgoing = name / "incoming", name / OUTGOING
        incoming.mkdir()
        yield incoming
        for written in (*incoming.rglob("*"), incoming):
            sync(written)
        if not overwrite and path.exists():
            path.rmdir()  # fails if the folder has been filled in the meantime
        if not path.exists():
            incoming.replace(path)
        elif not exchange_names(incoming, path):
            sync(path.parent)  # so that the old folder is never moved into a folder that is not on the disk
            path.replace(outgoing)
            try:
                incoming.replace(path)
            except OSError:
                outgoing.replace(path)
                raise
        sync(path.parent)  # before the old folder is removed


def can_be_replaced(folder: Path) -> bool:
    """Whether a folder can be replaced by another: the current folder and mount points cannot."""
    return folder.resolve() != Path.cwd() and not folder.is_mount()


def exchange_names(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders in one step.

    Returns:
        Whether the system and the file system can do this; if not, nothing has changed.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(first), os.fsencode(second)
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))
