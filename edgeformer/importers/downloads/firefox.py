"""Models of Firefox, from the Remote Settings collection that Firefox itself reads."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.version import InvalidVersion, Version

from edgeformer.data.download import cache_folder, download
from edgeformer.errors import DataError
from edgeformer.importers.downloads.model_download import ADVICE, ModelDownload
from edgeformer_runtime.files import locked_folder, write_atomically

SERVER = "https://firefox.settings.services.mozilla.com/v1"
"""``$EDGEFORMER_FIREFOX_SERVER`` names another one."""
COLLECTION = "/buckets/main/collections/translations-models-v2/records"
VOCABULARIES = ({"vocab"}, {"srcvocab", "trgvocab"})
"""Types of the vocabularies of a model: one for both sides, or two."""
LICENSE = "MPL-2.0"
MAX_FILE = 1 << 29
"""Size of a decompressed file, in bytes."""
T = TypeVar("T")


class Attachment(msgspec.Struct, frozen=True):
    """Location of a compressed file."""

    location: str
    hash: str
    """SHA-256."""


class FirefoxFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file of a model, as Remote Settings describes it."""

    name: str
    file_type: str
    source_language: str
    target_language: str
    version: str
    attachment: Attachment
    architecture: str | None = None
    decompressed_hash: str | None = None


def download_from_firefox(pair: str) -> ModelDownload:
    """Fetch the newest model of a pair of languages.

    Args:
        pair: such as ``enfr`` or ``en-fr``.

    Raises:
        DataError: there is no such pair, or a file is damaged or cannot be downloaded.
    """
    server = os.environ.get("EDGEFORMER_FIREFOX_SERVER", SERVER).rstrip("/")
    records = _fetched(f"{server}{COLLECTION}", list[FirefoxFile], "data")
    wanted = plain_pair(pair)
    candidates = [record for record in records if plain_pair(record.source_language + record.target_language) == wanted]
    files = newest(candidates)
    if not files:
        known = sorted({f"{record.source_language}-{record.target_language}" for record in records})
        raise DataError(f"Firefox has no model `{pair}`. It has: {', '.join(known)}.")
    base = _fetched(f"{server}/", str, "capabilities", "attachments", "base_url").rstrip("/")
    first = files[0]
    languages = first.source_language, first.target_language
    name = f"{'-'.join(languages)}-{first.version}-{first.architecture or 'model'}"
    folder = cache_folder() / "firefox" / name.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        for file in files:
            path = folder / Path(file.name).name
            if not path.is_file() or file.decompressed_hash != _sha256(path.read_bytes()):
                data = download(f"{base}/{file.attachment.location}", ADVICE)
                write_atomically(path, _content(file, data))
    revision = first.version + (f" ({first.architecture})" if first.architecture else "")
    origin = {"name": f"firefox:{'-'.join(languages)}", "revision": revision}
    return ModelDownload(folder, origin, license=LICENSE, languages=languages)


def newest(records: list[FirefoxFile]) -> list[FirefoxFile]:
    """Return the files of the newest version that is complete: model, vocabularies, and a shortlist if there is one.

    Of several architectures of one version, the last one by name is taken.
    """
    versions: dict[tuple[Version, str], dict[str, FirefoxFile]] = {}
    for record in records:
        with suppress(InvalidVersion):
            key = Version(record.version), record.architecture or ""
            versions.setdefault(key, {})[record.file_type] = record
    for key in sorted(versions, reverse=True):
        files = versions[key]
        vocabularies = next((types for types in VOCABULARIES if types <= files.keys()), None)
        if "model" in files and vocabularies is not None:
            return [files[kind] for kind in ("model", *sorted(vocabularies), "lex") if kind in files]
    return []


def plain_pair(pair: str) -> str:
    """A pair of languages in any spelling, such as ``enfr``."""
    return pair.replace("-", "").replace("_", "").lower()


def _content(record: FirefoxFile, data: bytes) -> bytes:
    """Decompress a download, or raise ``DataError`` if it is damaged."""
    content = data
    is_whole = _sha256(data) == record.attachment.hash
    if is_whole and data.startswith(b"\x28\xb5\x2f\xfd"):
        content = _decompressed(data, record.name)
    if not is_whole or record.decompressed_hash not in {None, _sha256(content)}:
        raise DataError(
            f"The download of `{record.name}` is damaged: its SHA-256 is not that of the collection. Download it again."
        )
    return content


def _decompressed(data: bytes, name: str) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(data) as stream:
            content: bytes = stream.read(MAX_FILE + 1)
    except zstandard.ZstdError as error:
        raise DataError(f"The download of `{name}` is damaged: {error}.") from None
    if len(content) > MAX_FILE:
        raise DataError(f"`{name}` is larger than {MAX_FILE:,} bytes.")
    return content


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _fetched(url: str, kind: type[T], *keys: str) -> T:
    """Fetch a JSON object, and return what it has under a path of keys."""
    try:
        value = msgspec.json.decode(download(url, ADVICE))
        for key in keys:
            value = value[key]
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise DataError(f"The answer of {url} is not what Firefox expects: {error}.") from None
