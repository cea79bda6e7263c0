"""Translating a document: its kind is that of its file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import ConfigError, DataError
from edgeformer_runtime.files import atomic_file
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_ELEMENTS
from edgeformer_text.block import Block
from edgeformer_text.documents.document import Document, text_document
from edgeformer_text.documents.gettext import read_po
from edgeformer_text.documents.markdown import markdown_parts
from edgeformer_text.documents.open_document import read_odt
from edgeformer_text.documents.subtitles import read_subtitles
from edgeformer_text.documents.word import read_docx
from edgeformer_text.markup.html import html_parts

if TYPE_CHECKING:
    from edgeformer_runtime.search.options import DecodeOptions
    from edgeformer_text.results import TextTranslation
    from edgeformer_text.text_translator import TextTranslator


_read_html = partial(text_document, parts=html_parts)
_read_markdown = partial(text_document, parts=markdown_parts)
_READERS: Mapping[str, Callable[[bytes, str], Document]] = {
    ".docx": read_docx,
    ".htm": _read_html,
    ".html": _read_html,
    ".markdown": _read_markdown,
    ".md": _read_markdown,
    ".odt": read_odt,
    ".po": read_po,
    ".pot": read_po,
    ".srt": partial(read_subtitles, is_vtt=False),
    ".txt": partial(text_document, parts=lambda text: [Block.plain(text)]),
    ".vtt": partial(read_subtitles, is_vtt=True),
}
SUFFIXES = tuple(_READERS)
"""Ends of the names of documents that can be translated."""
_COUNTED: Mapping[str, tuple[bytes, ...]] = {
    **dict.fromkeys((".htm", ".html"), (b"<",)),
    **dict.fromkeys((".markdown", ".md"), (b"<", b"[", b"\n")),
    **dict.fromkeys((".po", ".pot", ".srt", ".vtt"), (b"\n",)),
}
"""What elements of text files begin or end with, each of which takes microseconds to read."""


def read_document(content: bytes, name: str, kind: str = "") -> Document:
    """Read the content of a document.

    Args:
        content: content of its file.
        name: name of its file.
        kind: one of :data:`SUFFIXES`; by default, that of the name.

    Raises:
        ConfigError: its kind is unknown, or needs a package that is not installed.
        DataError: it is damaged, or too large.
    """
    kind = kind or Path(name).suffix.lower()
    read = _READERS.get(kind)
    if read is None:
        raise ConfigError(
            f"`{name}` is not a document that can be translated: its name must end in {', '.join(SUFFIXES)}."
        )
    if len(content) > MAX_DOCUMENT_BYTES:
        raise DataError(f"`{name}` has more than {MAX_DOCUMENT_BYTES:,} bytes; split it.")
    if sum(map(content.count, _COUNTED.get(kind, ()))) > MAX_DOCUMENT_ELEMENTS:
        raise DataError(f"`{name}` has more than {MAX_DOCUMENT_ELEMENTS:,} tags, links or lines; split it.")
    return read(content, name)


def translate_content(
    translator: TextTranslator, content: bytes, name: str, options: DecodeOptions | None = None, kind: str = ""
) -> tuple[bytes, list[TextTranslation]]:
    """Translate the content of a document, as :func:`read_document` reads it, whose errors this raises. Without
    decoding options, those of :meth:`TextTranslator.decoding` count.

    Returns:
        The translated document, and the translations of its texts.
    """
    document = read_document(content, name, kind)
    plans = [translator.plan(piece) for piece in document.pieces]
    translations = translator.translate_plans(plans, translator.decoding() if options is None else options)
    texts = [translation.text for translation in translations]
    return document.write(texts, translator.translator.languages[1]), translations


def translated_once(document: Document, texts: Sequence[str], language: str, name: str) -> Document:
    """The translation of a document, to be translated to a further language."""
    if document.again is not None:
        return replace(document, pieces=document.again(texts))
    return read_document(document.write(texts, language), name)


def translate_document(
    translator: TextTranslator, source: str | Path, target: str | Path, options: DecodeOptions | None = None
) -> list[TextTranslation]:
    """Translate a document file; the new file is written only on success. See :func:`translate_content`.

    Raises:
        ConfigError: its kind is unknown, or another one than that of ``target``.
        DataError: it is damaged, or too large.
        OSError: a file cannot be read or written.
    """
    source, target = Path(source), Path(target)
    if source.suffix.lower() != target.suffix.lower():
        raise ConfigError(f"`{target}` must end in {source.suffix}, since the translation is of the same kind.")
    with source.open("rb") as stream:
        original = stream.read(MAX_DOCUMENT_BYTES + 1)  # not much more of one that is too large
    content, translations = translate_content(translator, original, str(source), options)
    with atomic_file(target) as file:
        file.write(content)
    return translations
