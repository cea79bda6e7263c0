"""Documents of strangers: read and written by processes of their own, which have little memory and time."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from edgeformer_runtime.errors import DataError, EdgeformerError
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.serve.files.document_process import Answer, Request
from edgeformer_runtime.text.documents.document import Piece

MAX_PROCESSES = 2
"""Documents that are read or written at a time."""
MEMORY = 192 * MIB
"""Address space of a process, in bytes, and for each byte of its document."""
MEMORY_PER_BYTE = 24
SECONDS = 4
"""Processor time of a process, in seconds, and for each MiB of its document."""
SECONDS_PER_MIB = 2
MAX_ANSWER = 16 * MIB
"""Bytes of what is to be translated of a document, with its markup, in addition to those of the document."""
CHUNK = 2**16
_TOO_LARGE = "`{}` takes too much memory or time to read; divide it."


class Documents:
    """Reads and writes documents; belongs to one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_PROCESSES)

    async def read(self, content: bytes, name: str) -> SentDocument:
        """Read a document.

        Raises:
            DataError: it is damaged, or takes too much memory or time.
        """
        document = SentDocument(self, content, name)
        await document.translated()
        return document

    async def ask(self, request: Request) -> Answer:
        """Ask a process; it ends if this is canceled.

        Raises:
            DataError: the document is damaged, or takes too much memory or time.
            EdgeformerError: the reader of such documents failed.
        """
        size = len(request.content) + sum(len(text) for texts, _ in request.translations for text in texts)
        limits = MEMORY + MEMORY_PER_BYTE * size, SECONDS + SECONDS_PER_MIB * size // MIB
        async with self._free:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "edgeformer_runtime.serve.files.document_process", *map(str, limits)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "SYSTEMROOT": os.environ.get("SYSTEMROOT", ""),
                },
            )
            try:
                reply = await _exchanged(process, msgspec.msgpack.encode(request), size + MAX_ANSWER)
            except BaseException:  # such as the end of the request's time
                with suppress(ProcessLookupError):
                    process.kill()
                raise
            finally:
                await process.wait()
        try:
            answer = msgspec.msgpack.decode(reply, type=Answer)
        except msgspec.DecodeError:
            answer = Answer(problem=_TOO_LARGE.format(request.name))
        if answer.failure:
            raise EdgeformerError(f"A document could not be read: {answer.failure}")
        if answer.problem:
            raise DataError(answer.problem)
        return answer


class SentDocument:
    """A document that other processes read and write.

    Args:
        documents: asks them.
        content: content of its file.
        name: name of its file.
    """

    def __init__(self, documents: Documents, content: bytes, name: str) -> None:
        self._documents, self._request = documents, Request(name, content)
        self.pieces: Sequence[Piece] = ()
        """What is translated of it, in the language that it was translated to last."""

    async def translated(self, *translation: tuple[list[str], str]) -> None:
        """Continue with what there is to translate of the document, or of its translation to a further language.

        Args:
            translation: translation of each piece, and their language.

        Raises:
            DataError, EdgeformerError: see :meth:`Documents.ask`.
        """
        self._request.translations += translation
        self.pieces = (await self._documents.ask(self._request)).pieces

    async def written(self, texts: list[str], language: str) -> bytes:
        """Write the translated document.

        Args:
            texts: translation of each piece.
            language: their language.

        Raises:
            DataError, EdgeformerError: see :meth:`Documents.ask`.
        """
        self._request.translations.append((texts, language))
        self._request.is_last = True
        return (await self._documents.ask(self._request)).content


async def _exchanged(process: Process, request: bytes, limit: int) -> bytes:
    """Send a request, and return the answer, whose end is missing if the process was ended.

    Raises:
        DataError: it has more than ``limit`` bytes.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended, or was killed for its memory or time
        process.stdin.write(request)
        await process.stdin.drain()
        process.stdin.close()
    reply = bytearray()
    while part := await process.stdout.read(CHUNK):
        reply += part
        if len(reply) > limit:
            raise DataError("The document has too much text for one request; divide it.")
    return bytes(reply)
