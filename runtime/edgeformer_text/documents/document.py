"""What every kind of document offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgeformer_runtime.errors import DataError
from edgeformer_text.block import Block

Piece = Sequence[str | Block]
"""Part of a document that becomes one text: text to copy, and blocks to translate."""


@dataclass(frozen=True)
class Document:
    """A document that was read."""

    pieces: Sequence[Piece]
    """What is translated."""
    write: Callable[[Sequence[str], str], bytes]
    """Makes the translated document of the translation of each piece, and their language code."""
    again: Callable[[Sequence[str]], Sequence[Piece]] | None = None
    """Makes the pieces to translate to a further language of their translations; ``None`` if they are those of the
    translated document."""


def decoded(content: bytes, name: str) -> tuple[str, str]:
    """Decode a UTF-8 file, and return its byte order mark, if it has one, and its text.

    Raises:
        DataError: it is not UTF-8.
    """
    if content.startswith(b"\x1f\x8b"):
        raise DataError(f"{name[:1].upper()}{name[1:]} is compressed; unpack it with gunzip.")
    byte_order_mark = "\ufeff" if content.startswith(b"\xef\xbb\xbf") else ""
    try:
        return byte_order_mark, content[len(byte_order_mark.encode()) :].decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"Line {line} of {name} is not UTF-8 ({error.reason}); convert it, for example with iconv."
        ) from None


def text_document(content: bytes, name: str, parts: Callable[[str], Iterable[str | Block]]) -> Document:
    """A document whose file is one piece of text.

    Args:
        content: content of the file.
        name: the file, as an error names it.
        parts: divides the text.
    """
    byte_order_mark, text = decoded(content, f"`{name}`")
    return Document([list(parts(text))], lambda texts, language: (byte_order_mark + texts[0]).encode("utf-8"))
