"""Models by name, from where they are published: ``hf:ORGANIZATION/NAME`` and ``firefox:PAIR``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgeformer.importers.downloads.firefox import download_from_firefox, plain_pair
from edgeformer.importers.downloads.hugging_face import download_from_hub
from edgeformer.importers.downloads.model_download import ModelDownload

__all__ = ["ModelDownload", "download_model", "is_from", "is_model_name"]

PUBLISHERS: Mapping[str, Callable[[str], ModelDownload]] = {"firefox": download_from_firefox, "hf": download_from_hub}
"""Download function of each publisher, whose key precedes the colon of a model's name."""


def is_model_name(source: str) -> bool:
    """Return whether a text is a name like ``hf:…`` rather than a path."""
    return ":" in source and source.partition(":")[0] in PUBLISHERS


def download_model(name: str) -> ModelDownload:
    """Fetch a model by name, or find it among those fetched before.

    Raises:
        ConfigError: the name is malformed.
        DataError: the model does not exist, or the download failed.
    """
    publisher, _, model = name.partition(":")
    return PUBLISHERS[publisher](model)


def is_from(name: str, origin: str, revision: str) -> bool:
    """Return whether a name means a model with this record, as far as names tell."""
    model, _, wanted = name.partition("@")
    spelled = plain_pair if name.startswith("firefox:") else str
    return is_model_name(name) and spelled(model) == spelled(origin) and wanted in ("", revision)
