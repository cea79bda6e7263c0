"""Reading the files of a bundle: plain files only, never more than a limit, and every failure is a ``BundleError``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from edgeformer_runtime.errors import BundleError, EdgeformerError

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Do not follow a symbolic link, do not wait for the writer of a pipe, and do not convert line ends."""
MAX_MESSAGE = 300
"""Characters of a library's message within one of ours."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise whatever goes wrong while ``path``, a part of a bundle, is read as a :class:`BundleError` that names it.

    This is the boundary between untrusted files and callers. Errors of this package pass through unchanged; the rest
    comes from libraries that were given something they did not expect.
    """
    try:
        yield
    except EdgeformerError:
        raise
    except OSError as error:
        raise BundleError(f"Bundle `{path.parent}`: `{path.name}` cannot be read ({error.strerror}).") from None
    except Exception as error:
        raise BundleError(
            f"Bundle `{path.parent}`: `{path.name}` is damaged: {shortened(error)}. Export the bundle again."
        ) from None


def shortened(value: object, limit: int = MAX_MESSAGE) -> str:
    """Text of a library's error, or of a value from a file: in one line without control characters, and not longer than
    ``limit``."""
    text = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    if not text and isinstance(value, Exception):
        return type(value).__name__
    return text if len(text) <= limit else text[:limit] + " …"


def is_plain(path: Path) -> bool:
    """Whether ``path`` is a regular file itself, not a symbolic link to one.

    Raises:
        OSError: its folder cannot be read.
    """
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_plain(path: Path) -> BufferedReader:
    """Open a file without following a symbolic link.

    Raises:
        OSError: the file cannot be read, or is not a plain file.
    """
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a plain file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, limit: int) -> bytes:
    """Read a file of at most ``limit`` bytes.

    Raises:
        BundleError: the file is longer.
        OSError: the file cannot be read, or is not a plain file.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > limit else file.read(size + 1)
    if max(size, len(data)) > limit:
        raise BundleError(f"Bundle `{path.parent}`: `{path.name}` has more than {limit:,} bytes, the limit.")
    return data
