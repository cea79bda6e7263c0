"""Reading files from elsewhere: arrays of plain numbers, never much more than the size of the file, and hashes."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ConfigError, ImporterError
from edgeformer_runtime.files import checked_members

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
ZIPPED = {".npz", ".argosmodel"}
"""Suffixes of those that are zip files."""
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
            checked_members(archive, MAX_ARRAYS)
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
    """Unpack a zip file, or the gzip files of a folder beside copies of its others, and yield a temporary folder.

    Args:
        path: the zip file or the folder.
        members: returns which members of a zip file to unpack, and names to write them under, relative to the folder.
    """
    with TemporaryDirectory() as name:
        if path.is_dir():
            files = [file for file in sorted(path.iterdir()) if file.is_file()]
            opened: dict[str, Callable[[], Any]] = {
                file.name.removesuffix(".gz"): partial(gzip.open if file.suffix == ".gz" else Path.open, file, "rb")
                for file in files
            }
            _write(path, sum(file.stat().st_size for file in files), opened, Path(name))
        else:
            with open_zip(path) as archive:
                streams = {file: partial(archive.open, member) for member, file in members(archive).items()}
                _write(path, path.stat().st_size, streams, Path(name))
        try:
            try:
                yield Path(name)
            except (ConfigError, ImporterError):
                refuse_unusable(Path(name))
                raise
        except (ConfigError, ImporterError) as error:
            raise type(error)(str(error).replace(name, str(path))) from error


def _write(path: Path, packed: int, streams: Mapping[str, Callable[[], Any]], folder: Path) -> None:
    """Write the content of streams to files of these names, and count what is unpacked."""
    allowance = max(MAX_SMALL, MAX_UNPACKED * packed)
    for name, opened in streams.items():
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        try:
            with opened() as source, target.open("xb") as stream:
                while data := source.read(CHUNK):
                    allowance -= len(data)
                    if allowance < 0:
                        raise ImporterError(f"`{path}` is compressed more than weights can be.")
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
            if file.suffix in ZIPPED and not zipfile.is_zipfile(file):
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
