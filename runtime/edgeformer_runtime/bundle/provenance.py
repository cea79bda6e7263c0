"""Provenance of a bundle's weights: text, training and versions.

For people, and for tools that need the same text.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Origin(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The text that a model was trained on, or the model that was imported. Later versions may record more of it."""

    name: str = ""
    """Name of the corpus, or ``files``."""
    licence: str = ""
    """License as stated by the corpus; empty if unknown."""
    origin: str = ""
    """Web address of the corpus; empty if unknown."""
    revision: str = ""
    """Version or commit of an imported model."""
    sha256: dict[str, str] = {}
    """SHA-256 of each file, by file name."""


class Provenance(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Provenance of the weights; unknown parts are omitted from the JSON."""

    recipe: dict[str, Any] = {}
    """Recipe of the run; a mapping, since each model family has its own fields."""
    training: dict[str, Any] = {}
    """Record of the run, as the trainer writes it into ``run.json``."""
    exported_with: dict[str, str] = {}
    """Versions of Python and of the libraries used for export."""

    def __post_init__(self) -> None:
        """Refuse a record without an origin that can be read."""
        self.origin()

    def origin(self) -> Origin:
        """Return the text or the model that the training started from.

        Raises:
            ValidationError: the record of it has another form.
        """
        return msgspec.convert(self.training.get("provenance", {}), Origin)
