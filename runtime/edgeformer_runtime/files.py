"""Atomic creation of files and folders, and locks that let only one process at a time use a folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from edgeformer_runtime.errors import ConfigError


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors about a temporary file or folder, such as a full disk, name the final ``path`` instead."""
    try:
        yield
    except OSError as error:
        parts = () if error.filename is None else Path(error.filename).parts
        if error.errno is not None and (not parts or any(part.startswith(f".{path.name}.") for part in parts)):
            error.filename, error.filename2 = str(path), None
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, even after a crash, sees either the old or the new content.

    Missing parent folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    with naming(path):
        try:
            with temporary.open("xb") as file:  # unlike tempfile's functions, `open` respects the umask
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def staged_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder beside ``path``; it is renamed to ``path`` if the block succeeds, and removed otherwise.

    Args:
        path: folder to create; must be missing or empty unless ``overwrite`` is set. See :func:`can_be_replaced`.
        overwrite: replace whatever is at ``path``.

    Raises:
        OSError: ``path`` exists, is not an empty folder, and ``overwrite`` is not set.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        naming(path),
        TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.", ignore_cleanup_errors=True) as temporary,
    ):
        incoming, outgoing = Path(temporary) / "incoming", Path(temporary) / "outgoing"
        incoming.mkdir()
        yield incoming
        if not path.exists():
            incoming.replace(path)
        elif not overwrite:
            path.rmdir()  # fails if the folder has been filled in the meantime
            incoming.replace(path)
        else:
            path.replace(outgoing)
            try:
                incoming.replace(path)
            except OSError:
                outgoing.replace(path)
                raise


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that use this lock. Creates no lock file; released when the process ends.

    Does nothing where locks are unsupported: on Windows and on some network drives.

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
        yield
    finally:
        os.close(descriptor)


def can_be_replaced(folder: Path) -> bool:
    """Whether a folder can be replaced by another: the current folder and mount points cannot."""
    return folder.resolve() != Path.cwd() and not folder.is_mount()
