"""Reading files from elsewhere: arrays of plain numbers, never much more than the size of the file, and hashes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ConfigError, ImporterError
from edgeformer_runtime.files import check_members

MAX_ARRAYS = 100_000
"""Arrays of a model, and files of an archive."""
MAX_HEADER = 10_000
"""Bytes of the header of an array."""
MAX_EXPANSION = 2
"""Size of all arrays, in multiples of the size of the file. Weights can hardly be compressed."""
MAX_UNPACKED = 4
"""Size of all unpacked files, in multiples of the size of what they are packed in."""
MAX_SMALL = 64 << 20
"""Size of unpacked files that is always allowed, in bytes."""
MAX_DEPTH = 32
"""Folders inside each other in an archive."""
MAX_TEXT = 64 << 20
"""Size of a vocabulary or of a JSON file, in bytes."""
MAX_YAML = 1 << 20
MAX_SCALAR = 4096
"""Characters of a value in YAML; some numbers take time that grows with the square of their length."""
CHUNK = 1 << 20
POINTER = b"version https://git-lfs.github.com/spec/"
"""Beginning of a file that git has in place of a large one."""
NEEDED = {".safetensors", ".bin", ".npz", ".spm", ".model", ".json", ".txt", ".yml", ".gz", ".zip", ".argosmodel"}
"""Suffixes of files that models need."""
ARCHIVES = {".zip", ".argosmodel"}
"""Suffixes of zip files with all files of a model."""
T = TypeVar("T")


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file whose members are read in bounded memory.

    Raises:
        ImporterError: the file is damaged, also when its members are read; it has too many members; or they are
            compressed in a way whose output has no bound.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(archive, MAX_ARRAYS)
            yield archive
    except ImporterError:
        raise
    except Exception as error:  # zipfile and numpy raise many types for damaged files
        raise ImporterError(f"`{path}` is damaged: {error}. Download it again.") from None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file, without objects."""
    with open_zip(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > MAX_EXPANSION * path.stat().st_size:
            raise ImporterError(f"`{path}` is compressed more than weights can be; save it again without that.")
        return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=MAX_HEADER)
        if stream.read(1):
            raise ImporterError(f"Array `{entry.filename}` has more bytes than its shape needs.")
    return array


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a zip file, or the gzip files of a folder beside copies of its others, into a temporary folder.

    Yields:
        The folder, or the one in it that has the files.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        if path.is_dir():
            _unpack_gzip(path, folder)
        else:
            with open_zip(path) as archive:
                _require_dense(path, path.stat().st_size, sum(member.file_size for member in archive.infolist()))
                if any(name.count("/") > MAX_DEPTH for name in archive.namelist()):
                    raise ImporterError(f"`{path}` has folders more than {MAX_DEPTH} deep.")
                archive.extractall(folder)  # leaves out what would lead out of the folder: drives, roots and `..`
        while not any(file.suffix in NEEDED for file in folder.iterdir()):
            inner = [each for each in folder.iterdir() if each.is_dir() and not each.name.startswith((".", "__"))]
            if len(inner) > 1:
                raise ImporterError(f"`{path}` has several folders; unpack it, and give the one with the model.")
            if not inner:
                break
            (folder,) = inner
        try:
            try:
                yield folder
            except (ConfigError, ImporterError):
                refuse_unusable(folder)
                raise
        except (ConfigError, ImporterError) as error:
            raise type(error)(str(error).replace(str(folder), str(path))) from error


def _require_dense(path: Path, packed: int, unpacked: int) -> None:
    """Refuse files that unpack to many times their size."""
    if unpacked > max(MAX_SMALL, MAX_UNPACKED * packed):
        raise ImporterError(f"`{path}` is compressed more than weights can be.")


def _unpack_gzip(path: Path, folder: Path) -> None:
    """Unpack the gzip files of a folder, and copy the others."""
    files = [file for file in sorted(path.iterdir()) if file.is_file()]
    packed, unpacked = sum(file.stat().st_size for file in files), 0
    for file in files:
        name = file.name.removesuffix(".gz")
        try:
            with (
                gzip.open(file) if file.suffix == ".gz" else file.open("rb") as source,
                (folder / name).open("xb") as stream,
            ):
                while data := source.read(CHUNK):
                    unpacked += len(data)
                    _require_dense(path, packed, unpacked)
                    stream.write(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ImporterError(f"`{name}` of `{path}` is damaged: {error}. Download it again.") from None


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file that should be small.

    Raises:
        ImporterError: it cannot be read, has more than ``limit`` bytes, or is what git has instead of a large file.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = stream.read(min(size, limit) + 1)
    except OSError as error:
        raise ImporterError(f"`{path}` cannot be read: {error.strerror}.") from None
    if len(data) > limit:
        raise ImporterError(f"`{path}` has more than {limit:,} bytes.")
    refuse_pointer(path, data)
    return data


def read_text(path: Path, limit: int = MAX_TEXT) -> str:
    """Read a small text file in UTF-8, without changing the ends of its lines.

    Raises:
        ImporterError: it cannot be read, has more than ``limit`` bytes, or is not UTF-8.
    """
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImporterError(f"`{path}` is damaged: {error}.") from None


def refuse_pointer(path: Path, data: bytes | None = None) -> None:
    """Refuse what git has instead of a large file, whose start is read unless ``data`` is its content."""
    if data is None:
        with path.open("rb") as stream:
            data = stream.read(len(POINTER))
    if data.startswith(POINTER):
        raise ImporterError(
            f"`{path}` is a pointer of git-LFS instead of the file; run `git lfs pull` in its folder, or download it."
        )


def refuse_unusable(path: Path) -> None:
    """Refuse a file, or a folder with a file that a model needs, that is what git has instead of a large file, or
    the beginning of a zip file.
    """
    for file in (path, *path.glob("*"), *path.glob("model/*")):
        if file.suffix in NEEDED and file.is_file():
            refuse_pointer(file)
            if file.suffix in {".npz", *ARCHIVES} and not zipfile.is_zipfile(file):
                raise ImporterError(f"`{file}` is damaged: it is incomplete, or not a zip file. Download it again.")


class BinaryReader:
    """Reads from a file of a known size; raises ``ValueError`` where it ends too early, before it allocates."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.remaining = stream, os.fstat(stream.fileno()).st_size

    def take(self, size: int) -> bytes:
        """The next bytes."""
        data = self._stream.read(size) if size <= self.remaining else b""
        if len(data) != size:
            raise ValueError("it ends too early")
        self.remaining -= size
        return data

    def numbers(self, layout: str) -> tuple[int, ...]:
        """The next numbers, as :mod:`struct` describes them."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def number(self, layout: str) -> int:
        """The next number."""
        (value,) = self.numbers(layout)
        return value


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryReader]:
    """Open a binary file; a ``ValueError`` while it is read says how it is damaged."""
    try:
        with path.open("rb") as stream:
            yield BinaryReader(stream)
    except OSError as error:
        raise ImporterError(f"`{path}` cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ImporterError(f"`{path}` is damaged, or of another format: {error}. Download it again.") from None


def begins(path: Path, check: Callable[[BinaryReader], bool]) -> bool:
    """Whether the beginning of a file is that of a format; ``False`` if it cannot be read."""
    try:
        with open_binary(path) as reader:
            return check(reader)
    except ImporterError:
        return False


def read_json(path: Path, kind: type[T]) -> T:
    """Read a JSON file that has a value of a type."""
    try:
        # Some files have NaN or infinity, which msgspec's own parser does not take.
        return msgspec.convert(json.loads(read_bytes(path, MAX_TEXT)), kind)
    except (ValueError, RecursionError) as error:
        raise ImporterError(f"`{path}` is damaged: {error}. Download it again.") from None


def parse_yaml(text: str) -> Any:
    """Parse YAML without aliases, of which a few lines can stand for gigabytes.

    Raises:
        ValueError: it is damaged, has aliases, or is too long or too deep.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            event = self.peek_event()  # type: ignore[no-untyped-call] # yaml has no type for it
            if isinstance(event, yaml.AliasEvent) or len(getattr(event, "value", None) or "") > MAX_SCALAR:
                raise yaml.YAMLError("it has an alias, or a value that is too long")
            return super().compose_node(parent, index)

    if len(text) > MAX_YAML:
        raise ValueError(f"it is longer than {MAX_YAML:,} bytes")
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def sha256_of(paths: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its name."""
    hashes = {}
    for path in paths:
        try:
            with path.open("rb") as stream:
                hashes[path.name] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise ImporterError(f"`{path}` cannot be read: {error.strerror}.") from None
    return hashes
