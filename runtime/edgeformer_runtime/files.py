"""Atomic and durable creation of files, by temporaries beside them, and locks that let only one process at a time use a
folder."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from edgeformer_runtime.errors import ConfigError

if sys.platform != "win32":
    import fcntl

OUTGOING = "outgoing"
"""Where a folder that is being replaced is kept inside a temporary folder, if names cannot be exchanged."""

_NAME = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF}
"""Numbers of errors with which file systems refuse what they cannot do."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors about a temporary file or folder, such as a full disk, name the final ``path`` instead."""
    try:
        yield
    except OSError as error:
        names = [Path(name) for name in (error.filename, error.filename2) if isinstance(name, str | Path)]
        if error.errno is not None and (not names or any(_is_temporary(name, path) for name in names)):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


@contextmanager
def atomic_file(path: Path, *, clear: bool = True) -> Iterator[BinaryIO]:
    """Yield a new file that replaces ``path`` if the block succeeds, and is removed otherwise.

    A reader sees either the old or the new content, even after a crash or a power failure.

    Args:
        path: the file.
        clear: see :func:`temporary`.

    Raises:
        OSError: the parent folder does not exist, or the file cannot be written; names ``path``.
    """
    with naming(path), temporary(path, create=lambda name: name.touch(exist_ok=False), clear=clear) as name:
        with name.open("wb") as file:  # unlike those of `tempfile`, the file's mode respects the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        name.replace(path)
        sync(path.parent)


def write_atomically(path: Path, content: bytes, *, clear: bool = True) -> None:
    """Write a file with :func:`atomic_file`. Missing parent folders are created."""
    make_folder(path.parent)
    with atomic_file(path, clear=clear) as file:
        file.write(content)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that use this lock, and clear what dead ones left in it.

    Creates no lock file; released when the process ends. Does nothing where locks are unsupported: on Windows and on
    some network drives.

    Raises:
        ConfigError: another process has locked the folder.
    """
    if not folder.is_dir():
        yield
        return
    try:
        with _locked(folder):
            clear_stale(folder)
            yield
    except _TakenError:
        raise ConfigError(
            f"`{folder}` is being used by another process; wait for it to finish, or choose another folder."
        ) from None


def _is_temporary(name: Path, path: Path) -> bool:
    """Whether a name is that of a temporary of ``path``, or inside it."""
    return any(part.startswith(f".{path.name}.") for part in name.parts)


def check_members(archive: zipfile.ZipFile, limit: int) -> list[zipfile.ZipInfo]:
    """The members of a zip file, none of which takes more memory to read than is asked for.

    Args:
        archive: the zip file.
        limit: maximum number of members.

    Raises:
        BadZipFile: there are more, several are the same bytes of the file, which unpack to many times its size, or one
            is compressed by bzip2 or LZMA, which unpack any amount at once.
    """
    members = archive.infolist()
    if len(members) > limit:
        raise zipfile.BadZipFile(f"it has {len(members):,} members, more than {limit:,}")
    if len({member.header_offset for member in members}) < len(members):
        raise zipfile.BadZipFile("its members overlap")
    if {member.compress_type for member in members} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile("it uses a compression method that zip files usually do not")
    return members


@contextmanager
def temporary(path: Path, create: Callable[[Path], object], *, clear: bool = True) -> Iterator[Path]:
    """Create a temporary beside ``path`` and remove it at the end, unless it has been renamed.

    It is locked while it is in use, so that :func:`clear_stale` recognizes those of dead processes.

    Args:
        path: what the temporary will become.
        create: creates an empty file or folder, or gives ``path`` this name, for it to be removed.
        clear: remove stale temporaries of ``path`` first, which lists the whole folder; whoever writes many files into
            one folder does that once instead.
    """
    if clear:
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


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    is_folder = path.is_dir()
    if is_folder and sys.platform == "win32":  # where folders cannot be opened
        return
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in UNSUPPORTED:  # some network drives cannot sync folders
            raise
    finally:
        os.close(descriptor)


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
    """Another process has locked or removed a file or folder."""


@contextmanager
def _locked(path: Path, *, required: bool = False) -> Iterator[None]:
    """Lock a file or folder; where locks are unsupported, fail if one is ``required``, else go on without."""
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
