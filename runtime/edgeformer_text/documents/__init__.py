"""Documents: what their files hold, and translating them."""

from edgeformer_text.documents.files import SUFFIXES, translate_document

__all__ = ["SUFFIXES", "translate_document"]
