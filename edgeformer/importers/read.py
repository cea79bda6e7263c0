"""From a path to an imported model, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgeformer.errors import EdgeformerError, ImporterError
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.registry import choose_importer
from edgeformer.traceback_summary import describe


@dataclass(frozen=True)
class Found:
    """An imported model and where it comes from."""

    model: ImportedModel
    importer: str
    """Name of the importer."""
    origin: dict[str, Any]
    """For the record in the run folder: name, license, SHA-256 of the files."""


def read_model(path: Path, format_name: str | None, *, source_language: str = "", target_language: str = "") -> Found:
    """Read a model with the importer of its format.

    Args:
        path: a file or folder.
        format_name: name of an importer; ``None`` recognizes the format.
        source_language: BCP 47 tag; by default, what the model states.
        target_language: BCP 47 tag; by default, what the model states.

    Raises:
        ConfigError: the format is unknown.
        ImporterError: the model is damaged, or has something that the families cannot represent.
    """
    importer = choose_importer(path, format_name)
    try:
        model = importer.read(path)
    except EdgeformerError:
        raise
    except Exception as error:  # what a damaged file makes libraries raise
        raise ImporterError(f"`{path}` is damaged, or not of the format {importer.name}: {describe(error)}.") from error
    model = replace(
        model,
        source_language=source_language or model.source_language,
        target_language=target_language or model.target_language,
    )
    origin = {"name": f"{importer.name}: {path.resolve().name}", "licence": model.license, "sha256": model.hashes}
    return Found(model, importer.name, origin)
