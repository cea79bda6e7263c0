"""From a path to an imported model, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.archive import ARCHIVES, refuse_unusable, sha256_of, unpacked
from edgeformer.importers.downloads import ModelDownload, download_model, is_model_name
from edgeformer.importers.languages import stated_tag
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import Importer, ImportOverrides, choose_importer, recognizing
from edgeformer.traceback_summary import describe
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.bundle.provenance import Origin

MAX_MESSAGE = 1000
"""Characters of an error."""


@dataclass(frozen=True)
class ImportResult:
    """An imported model, and where it comes from."""

    model: ImportedModel
    importer: str
    """Name of the importer."""
    origin: dict[str, Any]
    """For the record in the run folder: name, license, SHA-256 of the files."""


def fetch(source: str | Path) -> ModelDownload:
    """Download a model that is given by name; see :func:`~edgeformer.importers.downloads.download_model`."""
    if isinstance(source, str) and is_model_name(source) and not Path(source).exists():
        return download_model(source)
    return ModelDownload(Path(source))


def read_model(
    source: str | Path | ModelDownload,
    format_name: str | None = None,
    *,
    source_language: str = "",
    target_language: str = "",
    license: str = "",
    tokenizers: Sequence[Path] = (),
) -> ImportResult:
    """Read a model with the importer of its format.

    Args:
        source: a file or folder, a zip file of one, the name of a published model, or what :func:`fetch` returns.
        format_name: name of an importer; ``None`` recognizes the format.
        source_language: BCP 47 tag; by default, what the model states.
        target_language: BCP 47 tag; by default, what the model states.
        license: license of the weights; by default, what the model states.
        tokenizers: SentencePiece model of both sides, or one for each; by default, what is in the folder.

    Raises:
        ConfigError: the format or a language is unknown, the name malformed, or a tokenizer not one that the model
            needs.
        DataError: the model cannot be downloaded.
    """
    overrides = ImportOverrides(
        source_language=source_language, target_language=target_language, tokenizers=tuple(tokenizers)
    )
    downloaded = source if isinstance(source, ModelDownload) else fetch(source)
    path = downloaded.path
    _refuse_special(path)
    if packed := _packed(path):
        for file in packed:
            refuse_unusable(file)
        path = path if path.suffix.lower() in ARCHIVES else packed[0].parent
        with unpacked(path) as folder:
            importer, model = _read(folder, format_name, overrides)
        model = replace(model, hashes=sha256_of([*packed, *tokenizers]))
    else:
        importer, model = _read(path, format_name, overrides)
    # A model for many languages has codes of its own.
    source, target = (
        language if language in model.text.languages else stated_tag(language)
        for language in (source_language, target_language)
    )
    model = replace(
        model,
        source_language=source or model.source_language or downloaded.languages[0],
        target_language=target or model.target_language or downloaded.languages[1],
        license=license or model.license or downloaded.license,
    )
    origin = {
        "name": f"{importer.name}: {path.resolve().name}",
        **downloaded.origin,
        "licence": model.license,
        "sha256": model.hashes,
    }
    return ImportResult(model, importer.name, origin)


def is_record_of(origin: Origin, downloaded: ModelDownload) -> bool:
    """Return whether a record of an imported model is of what was downloaded, or of the files at a path."""
    path, sha256 = downloaded.path, origin.sha256
    if downloaded.origin:
        return (origin.name, origin.revision) == (downloaded.origin["name"], downloaded.origin["revision"])
    if path.is_file():
        return sha256_of([path])[path.name] in sha256.values()
    files = [file for name in sha256 for file in (path / name, *path.glob(f"*/{escape(name)}")) if file.is_file()]
    return bool(sha256) and sha256_of(files) == sha256


def _packed(path: Path) -> list[Path]:
    """The files that a model is packed in, as a whole or one by one; empty if an importer recognizes it as it is."""
    is_gz = path.suffix == ".gz" and not _is_tar(path) and path.is_file()
    folder = path.parent if is_gz else path
    packed = [path] if path.suffix.lower() in ARCHIVES and path.is_file() else sorted(folder.glob("*.gz"))
    packed = [file for file in packed if not _is_tar(file)]
    return [] if not packed or (not is_gz and recognizing(path)) else packed


def _is_tar(path: Path) -> bool:
    """Whether a packed file is a tar archive, by its name, such as ``model.tar.gz``."""
    return path.suffixes[-2:-1] == [".tar"]


def _refuse_special(path: Path) -> None:
    """Refuse pipes and devices, which would be waited for."""
    for file in (path, *path.glob("*"), *path.glob("model/*")):
        if file.exists() and not file.is_file() and not file.is_dir():
            raise ImporterError(f"`{file}` is neither a file nor a folder.")


def _read(path: Path, format_name: str | None, overrides: ImportOverrides) -> tuple[Importer, ImportedModel]:
    importer = choose_importer(path, format_name)
    try:
        model = importer.read(path, overrides)
    except Exception as error:  # what a damaged file makes libraries raise
        refuse_unusable(path)
        if isinstance(error, ConfigError | ImporterError):  # the message may have names from files
            raise type(error)(shortened(error, MAX_MESSAGE)) from error
        raise ImporterError(
            f"`{path}` is damaged, or not of the format {importer.name}: {shortened(describe(error))}."
        ) from error
    known = sha256_of(overrides.tokenizers).values()
    if unused := [file for file in overrides.tokenizers if model.hashes.get(file.name) not in known]:
        raise ConfigError(f"`--tokenizer {unused[0]}` is not needed: the model has a tokenizer of its own.")
    if others := [other.name for other in recognizing(path) if format_name is None and other is not importer]:
        note = f"The folder also has a model of the format {' and of '.join(others)}; --from chooses one."
        model = replace(model, notes=(*model.notes, note))
    return importer, model
