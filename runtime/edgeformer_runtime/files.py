"""Atomic creation of files and folders, and locks that let only one process at a time use a folder."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.temporaries import (
    OUTGOING,
    clear_stale,
    exchange_names,
    make_folder,
    sync,
    sync_tree,
    temporary,
)


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
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file that replaces ``path`` if the block succeeds, and is removed otherwise.

    A reader sees either the old or the new content, even after a crash or a power failure.

    Raises:
        OSError: the parent folder does not exist, or the file cannot be written; names ``path``.
    """
    with naming(path), temporary(path, create=lambda name: name.touch(exist_ok=False)) as name:
        with name.open("wb") as file:  # unlike those of `tempfile`, the file's mode respects the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        name.replace(path)
        sync(path.parent)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file with :func:`atomic_file`. Missing parent folders are created."""
    make_folder(path.parent)
    with atomic_file(path) as file:
        file.write(content)


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
        sync_tree(incoming)
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


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that use this lock, and clear what dead ones left in it.

    Creates no lock file; released when the process ends. Does nothing where locks are unsupported: on Windows and on
    some network drives.

    Raises:
        ConfigError: another process has locked the folder.
    """
    if fcntl is None or not folder.is_dir():
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"`{folder}` is being used by another process; wait for it to finish, or choose another folder."
            ) from None
        except OSError:  # locks are not supported here
            pass
        clear_stale(folder)
        yield
    finally:
        os.close(descriptor)


def can_be_replaced(folder: Path) -> bool:
    """Whether a folder can be replaced by another: the current folder and mount points cannot."""
    return folder.resolve() != Path.cwd() and not folder.is_mount()


def _is_temporary(name: Path, path: Path) -> bool:
    """Whether a name is that of a temporary of ``path``, or inside it."""
    return any(part.startswith(f".{path.name}.") for part in name.parts)


def checked_members(archive: zipfile.ZipFile, limit: int) -> list[zipfile.ZipInfo]:
    """The members of a zip file, none of which takes more memory to read than is asked for.

    Args:
        archive: the zip file.
        limit: maximum number of members.

    Raises:
        BadZipFile: there are more, or one is compressed by bzip2 or LZMA, which unpack any amount at once.
    """
    members = archive.infolist()
    if len(members) > limit:
        raise zipfile.BadZipFile(f"it has {len(members):,} members, more than {limit:,}")
    if {member.compress_type for member in members} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise zipfile.BadZipFile("it uses a compression method that zip files usually do not")
    return members
