"""The result of a download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ADVICE = "give the folder of a model that was downloaded elsewhere"
"""Advice for those without a network."""


@dataclass(frozen=True)
class ModelDownload:
    """A model in a local folder."""

    path: Path
    """The folder."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Record of the source: ``name``, ``revision``, and further fields if known."""
    license: str = ""
    """License of the weights, if the publisher states it."""
    languages: tuple[str, str] = ("", "")
    """Source and target language, if the name states them."""
