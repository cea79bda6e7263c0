"""Temporary files and folders beside the ones that they become, and what makes a change of names durable."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

OUTGOING = "outgoing"
"""Where a folder that is being replaced is kept inside a temporary folder, if names cannot be exchanged."""

_NAME = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF}


@contextmanager
def temporary(path: Path, create: Callable[[Path], object]) -> Iterator[Path]:
    """Create a temporary beside ``path`` and remove it at the end, unless it has been renamed.

    It is locked while it is in use, so that :func:`clear_stale` recognizes those of dead processes.

    Args:
        path: what the temporary will become.
        create: creates an empty file or folder, or gives ``path`` this name, for it to be removed.
    """
    clear_stale(path.parent, path.name)
    while True:
        name = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        create(name)
        try:
            with _locked(name):
                yield name
        except _TakenError:  # another process took it for stale before it was locked
            continue
        finally:
            remove(name)
        return


def clear_stale(folder: Path, target: str | None = None) -> None:
    """Remove temporaries that dead processes left in a folder.

    A folder that a process died replacing, where names cannot be exchanged, gets its name back first.

    Args:
        folder: the folder; need not exist.
        target: name of the file or folder whose temporaries are removed; ``None`` removes those of all.
    """
    if sys.platform == "win32" or not folder.is_dir():
        return
    with suppress(OSError):  # such as a folder of another user
        for path in list(folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None or target not in (None, match["target"]):
                continue
            with suppress(OSError, _TakenError), _locked(path, required=True):
                if (path / OUTGOING).is_dir() and not (folder / match["target"]).exists():
                    (path / OUTGOING).rename(folder / match["target"])
                    sync(folder)
                remove(path)


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
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":  # where folders cannot be opened
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in _UNSUPPORTED:  # some network drives cannot sync folders
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until a folder and everything in it is on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, durably, unless it exists."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def remove(path: Path) -> None:
    """Remove a file, or as much of a folder as possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class _TakenError(Exception):
    """Another process has locked or removed a temporary."""


@contextmanager
def _locked(path: Path, *, required: bool = False) -> Iterator[None]:
    """Lock a temporary; where locks are unsupported, fail if one is ``required``, else go on without."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise _TakenError from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(descriptor), path.stat()):
                raise _TakenError
        except (BlockingIOError, FileNotFoundError):
            raise _TakenError from None
        except OSError:
            if required:
                raise
        yield
    finally:
        os.close(descriptor)
