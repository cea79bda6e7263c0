"""The process that reads and writes one document of a stranger, in bounded memory and time, and without a model.

It reads a :class:`DocumentRequest` from standard input, up to its end, and writes a :class:`DocumentReply` to standard
output.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat

import msgspec

from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.process_limits import limit_process
from edgeformer_text.block import Block
from edgeformer_text.documents.document import Piece
from edgeformer_text.documents.files import read_document, translated_once


class DocumentRequest(msgspec.Struct):
    """A document, and what it has been translated to."""

    name: str
    """Name of its file."""
    content: bytes
    translations: list[tuple[list[str], str]] = []
    """For each language that it has been translated to so far: the translation of each piece, and the language."""
    is_last: bool = False
    """Whether the last of these is what is wanted."""


class DocumentReply(msgspec.Struct, omit_defaults=True):
    """What there is to translate, or the translated document."""

    pieces: list[list[str | Block]] = []
    origins: list[bytes] = []
    """:attr:`Block.origins` of the blocks, which are empty in them: a list of a million numbers would take so long to
    decode that it would hold up other threads."""
    content: bytes = b""
    problem: str = ""
    """What is wrong with the document."""
    failure: str = ""
    """What is wrong with the program that reads it, and where."""


def answer(sent: DocumentRequest) -> DocumentReply:
    """Read a document, and write it if it is translated."""
    try:
        document = read_document(sent.content, sent.name)
        done = sent.translations
        for texts, language in done[:-1] if sent.is_last else done:
            document = translated_once(document, texts, language, sent.name)
        if sent.is_last:
            return DocumentReply(content=document.write(*done[-1]))
        blocks = [part for piece in document.pieces for part in piece if isinstance(part, Block)]
        origins = [array("I", block.origins).tobytes() for block in blocks]
        return DocumentReply(list(_with_origins(document.pieces, repeat(()))), origins)
    except EdgeformerError as error:
        return DocumentReply(problem=str(error))
    except RecursionError:
        return DocumentReply(problem=f"`{sent.name}` has elements that are nested too deeply.")


def decoded(reply: bytes) -> DocumentReply:
    """Decode an answer.

    Raises:
        msgspec.DecodeError: its end is missing.
    """
    answer = msgspec.msgpack.decode(reply, type=DocumentReply)
    answer.pieces = list(_with_origins(answer.pieces, (array("I", each) for each in answer.origins)))
    return answer


def _with_origins(pieces: Iterable[Piece], origins: Iterator[Sequence[int]]) -> Iterator[list[str | Block]]:
    for piece in pieces:
        yield [replace(part, origins=next(origins)) if isinstance(part, Block) else part for part in piece]


def _end_without_memory(unraisable: sys.UnraisableHookArgs) -> None:
    """End this process if a library goes on without memory, with an error for each thing that it has none for."""
    if issubclass(unraisable.exc_type, MemoryError):
        os._exit(1)


def main(arguments: Sequence[str]) -> None:
    """Answer a request."""
    sys.unraisablehook = _end_without_memory
    for number in (signal.SIGINT, signal.SIGTERM):  # may be sent to all processes of a server, which answers first
        signal.signal(number, signal.SIG_IGN)
    limit_process(*map(int, arguments))
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=DocumentRequest)
    try:
        reply = answer(request)
    except MemoryError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__, limit=-1)[0]
        reply = DocumentReply(failure=f"{type(error).__name__} at {frame.filename}:{frame.lineno}")
    sys.stdout.buffer.write(msgspec.msgpack.encode(reply))


if __name__ == "__main__":
    main(sys.argv[1:])
