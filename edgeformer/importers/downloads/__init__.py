"""Models by name, from where they are published: ``hf:ORGANIZATION/NAME`` and ``firefox:PAIR``."""

from edgeformer.importers.downloads.downloaded import Downloaded
from edgeformer.importers.downloads.names import download_model, is_from, is_model_name

__all__ = ["Downloaded", "download_model", "is_from", "is_model_name"]
