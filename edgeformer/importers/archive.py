"""Reading files from elsewhere: arrays of plain numbers, never much more than the size of the file, and hashes."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError

MAX_ARRAYS = 100_000
MAX_HEADER = 10_000
"""Bytes of the header of an array."""
MAX_EXPANSION = 2
"""Size of all arrays, in multiples of the size of the file. Weights can hardly be compressed."""
MAX_MEMBERS = 10_000
MAX_UNPACKED = 4
"""Size of all unpacked files, in multiples of the size of the archive."""
MAX_SMALL = 64 << 20
"""Size of unpacked files that is always allowed, in bytes."""
CHUNK = 1 << 20


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file, without objects.

    Raises:
        ImporterError: the file is damaged, has too many arrays, or is a compression bomb.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ARRAYS:
                raise ImporterError(f"`{path}` has {len(entries):,} arrays, more than {MAX_ARRAYS:,}.")
            if sum(entry.file_size for entry in entries) > MAX_EXPANSION * path.stat().st_size:
                raise ImporterError(f"`{path}` is compressed more than weights can be; save it again without that.")
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except ImporterError:
        raise
    except Exception as error:  # zipfile and numpy raise many types for damaged files
        raise ImporterError(f"`{path}` is damaged: {error}. Download it again.") from None


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran_order, dtype = read_header(stream, max_header_size=MAX_HEADER)
        if dtype.hasobject:
            raise ImporterError(f"Array `{entry.filename}` has Python objects, which are not read.")
        expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
        data = stream.read(expected + 1)
        if len(data) != expected or len(shape) > 8:
            raise ImporterError(f"Array `{entry.filename}` has {len(data):,} bytes, but its shape needs {expected:,}.")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran_order else "C")


def plain_files(archive: zipfile.ZipFile) -> dict[str, str]:
    """Names of all files of an archive, and their names without folders.

    Raises:
        ImporterError: two files have the same name.
    """
    found: dict[str, str] = {}
    for member in archive.namelist():
        name = PurePosixPath(member).name
        if member.endswith("/"):
            continue
        if name in found.values():
            raise ImporterError(f"The archive has two files named `{name}`.")
        found[member] = name
    return found


@contextmanager
def unpacked(path: Path, members: Callable[[zipfile.ZipFile], Mapping[str, str]] = plain_files) -> Iterator[Path]:
    """Unpack a zip file into a temporary folder, and yield the folder.

    Args:
        path: the zip file.
        members: returns which members to unpack, and names to write them under, relative to the folder.

    Raises:
        ImporterError: the file is damaged, or a compression bomb.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            with zipfile.ZipFile(path) as archive:
                if len(archive.namelist()) > MAX_MEMBERS:
                    raise ImporterError(f"`{path}` has more than {MAX_MEMBERS:,} files.")
                allowance = max(MAX_SMALL, MAX_UNPACKED * path.stat().st_size)
                for member, file in members(archive).items():
                    target = folder / file
                    target.parent.mkdir(exist_ok=True)
                    with archive.open(member) as source, target.open("xb") as stream:
                        while data := source.read(CHUNK):
                            allowance -= len(data)
                            if allowance < 0:
                                raise ImporterError(f"`{path}` is compressed more than weights can be.")
                            stream.write(data)
        except ImporterError:
            raise
        except Exception as error:  # zipfile raises many types for damaged files
            raise ImporterError(f"`{path}` is damaged: {error}. Download it again.") from None
        yield folder


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file that should be small.

    Raises:
        ImporterError: it cannot be read, or has more than ``limit`` bytes.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = stream.read(min(size, limit) + 1)
    except OSError as error:
        raise ImporterError(f"`{path}` cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        raise ImporterError(f"`{path}` has more than {limit:,} bytes.")
    return data


def sha256_of(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its name.

    Raises:
        ImporterError: a file cannot be read.
    """
    hashes = {}
    for path in paths:
        try:
            with path.open("rb") as stream:
                hashes[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ImporterError(f"`{path}` cannot be read: {error.strerror}.") from None
    return hashes
