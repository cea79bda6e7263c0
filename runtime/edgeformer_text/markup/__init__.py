"""HTML as blocks of text with tags."""

from edgeformer_text.markup.html import html_parts, readable

__all__ = ["html_parts", "readable"]
