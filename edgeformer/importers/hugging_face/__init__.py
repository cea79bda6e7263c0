"""Model folders as Hugging Face's ``transformers`` saves them."""

from edgeformer.importers.hugging_face.importer import HUGGING_FACE

__all__ = ["HUGGING_FACE"]
