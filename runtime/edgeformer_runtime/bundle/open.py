"""Opens bundles. No content is used before its hash and schema have been checked."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeformer_runtime.bundle.manifest import FileEntry, Manifest, decode_manifest
from edgeformer_runtime.bundle.plain_files import is_plain, open_plain, read_plain, reading
from edgeformer_runtime.bundle.signature import Key, check_signature
from edgeformer_runtime.contract import ATTENTION_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MAX_MANIFEST_BYTES


@dataclass(frozen=True)
class Bundle:
    """A bundle folder whose manifest and files have been checked."""

    path: Path
    """Absolute path of the bundle folder."""
    manifest: Manifest
    """The bundle's manifest."""

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"Bundle({str(self.path)!r}, {manifest.family}, {manifest.precisions}, {self.nbytes / 1e6:.2f} MB)"

    def file(self, name: str) -> Path:
        """Path of a listed file.

        Raises:
            BundleError: the manifest does not list the file.
        """
        if name not in self.manifest.files:
            raise BundleError(f"Bundle `{self.path}` has no `{name}`; export it again.")
        return self.path / name

    def read(self, name: str, limit: int) -> bytes:
        """Read a listed file of at most ``limit`` bytes, and check its hash again.

        Raises:
            BundleError: the file is not listed, longer, or has changed.
        """
        path = self.file(name)
        with reading(path):
            data = read_plain(path, limit)
        if hashlib.sha256(data).hexdigest() != self.manifest.files[name].sha256:
            raise BundleError(f"Bundle `{self.path}` has changed since it was opened: `{name}` is another file.")
        return data

    def check(self, *names: str) -> None:
        """Check the hashes of files again, for files that are read long after the bundle was opened.

        Raises:
            BundleError: a file is not listed or has changed.
        """
        problems = _problems({self.file(name): self.manifest.files[name] for name in names})
        if problems:
            raise BundleError(f"Bundle `{self.path}` has changed since it was opened: " + "; ".join(problems) + ".")

    @property
    def has_attention(self) -> bool:
        """Whether the bundle has a graph that computes attention weights."""
        return ATTENTION_FILE in self.manifest.files

    @property
    def nbytes(self) -> int:
        """Size of all listed files in bytes."""
        return sum(entry.size for entry in self.manifest.files.values())


def open_bundle(path: str | Path, *, trusted_keys: Sequence[Key] | None = None) -> Bundle:
    """Open a bundle after checking its manifest and the size and SHA-256 of every listed file.

    Args:
        path: the bundle's folder.
        trusted_keys: public Ed25519 keys in PEM format, each as a path or as content; the bundle must be signed by one
            of them. ``None`` does not check who made the bundle.

    Raises:
        BundleError: a file is missing, modified or truncated, the schema revision differs, or the bundle is not signed
            by a trusted key. The message lists every file that is missing or has another size, otherwise every
            file with another content.
        ConfigError: a key cannot be read, or ``edgeformer[sign]`` is not installed.
    """
    path = Path(path)
    with reading(path / MANIFEST_FILE):
        if not (path / MANIFEST_FILE).exists():
            raise not_a_bundle(path)
        data = _read(path / MANIFEST_FILE)
        if _read(path / MANIFEST_HASH_FILE) != manifest_hash_line(data):
            raise BundleError(
                f"Bundle `{path}`: `{MANIFEST_FILE}` does not match its SHA-256; copy or export the bundle again."
            )
        if trusted_keys is not None:
            check_signature(path, data, trusted_keys)
        manifest = decode_manifest(data)
    problems = _problems({path / name: entry for name, entry in manifest.files.items()})
    if problems:
        raise BundleError(f"Bundle `{path}` is damaged: " + "; ".join(problems) + ". Copy or export it again.")
    return Bundle(path.absolute(), manifest)


def not_a_bundle(path: Path) -> BundleError:
    """The error for a path without a manifest."""
    problem = "is not a folder" if path.exists() else "does not exist"
    problem = f"is not a bundle: it has no `{MANIFEST_FILE}`" if path.is_dir() else problem
    advice = "give what `edgeformer export` wrote, or a name that `edgeformer models` lists"
    return BundleError(f"`{path}` {problem}; {advice}.")


def check_trust(path: Path, trusted_keys: Sequence[Key]) -> None:
    """Check that a bundle is signed by a trusted key, without reading its other files.

    Raises:
        BundleError, ConfigError: see :func:`open_bundle`.
    """
    with reading(path / MANIFEST_FILE):
        check_signature(path, _read(path / MANIFEST_FILE), trusted_keys)


def manifest_hash_line(data: bytes) -> bytes:
    """Content of the manifest's hash file, in ``sha256sum`` format."""
    return f"{hashlib.sha256(data).hexdigest()}  {MANIFEST_FILE}\n".encode()


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in lowercase hexadecimal."""
    with open_plain(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _problems(entries: Mapping[Path, FileEntry]) -> list[str]:
    """List the problems of files. Sizes are checked first: large files are not read if another is missing or cut."""
    return _found(_size_problem, entries) or _found(_content_problem, entries)


def _found(check: Callable[[Path, FileEntry], str | None], entries: Mapping[Path, FileEntry]) -> list[str]:
    problems = []
    for path, entry in entries.items():
        try:
            problem = check(path, entry)
        except FileNotFoundError:
            problem = "is missing or not a plain file"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        if problem:
            problems.append(f"`{path.name}` {problem}")
    return problems


def _size_problem(path: Path, entry: FileEntry) -> str | None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        return "is missing or not a plain file"
    return None if status.st_size == entry.size else f"has {status.st_size} bytes instead of {entry.size}"


def _content_problem(path: Path, entry: FileEntry) -> str | None:
    return None if file_sha256(path) == entry.sha256 else "does not match its SHA-256"


def _read(path: Path) -> bytes:
    if not is_plain(path):
        raise BundleError(
            f"Bundle `{path.parent}`: `{path.name}` is missing or not a plain file; copy or export it again."
        )
    return read_plain(path, MAX_MANIFEST_BYTES)
