"""HTML as blocks of text with tags."""

from edgeformer_runtime.text.markup.parts import html_parts, readable
from edgeformer_runtime.text.markup.tokens import INLINE

__all__ = ["INLINE", "html_parts", "readable"]
