"""Documents of strangers: read and written by processes of their own, which have little memory and time."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

import msgspec

from edgeformer_runtime.check.memory import available_memory
from edgeformer_runtime.errors import DataError, EdgeformerError
from edgeformer_runtime.limits import MIB
from edgeformer_server.files.document_process import (
    DocumentReply,
    DocumentRequest,
    decoded,
)

MAX_PROCESSES = 2
"""Documents that are read or written at a time."""
MEMORY = 192 * MIB
"""Address space of a process, in bytes, and for each byte of its document."""
MEMORY_PER_BYTE = 24
SHARE = 4
"""A process gets at most this part of the memory that is left on the machine or in the server's control group. All
documents together then leave half of it to the server, and one that needs more is refused before the system ends a
process."""
SECONDS = 4
"""Processor time of a process, in seconds, and for each MiB of its document."""
SECONDS_PER_MIB = 1
MAX_ANSWER = 16 * MIB
"""Bytes of what is to be translated of a document, with its markup, in addition to those of the document."""
CHUNK = 2**16
_TOO_LARGE = "`{}` takes too much memory or time to read; split it."


class DocumentProcesses:
    """Reads and writes documents; belongs to one event loop."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_PROCESSES)

    async def ask(self, document: DocumentRequest) -> DocumentReply:
        """Let a process read a document, or write it if it is translated; the process ends if this is canceled.

        Raises:
            DataError: the document is damaged, or takes too much memory or time.
            EdgeformerError: the reader of such documents failed.
        """
        size = len(document.content) + sum(len(text) for texts, _ in document.translations for text in texts)
        memory, seconds = MEMORY + MEMORY_PER_BYTE * size, SECONDS + SECONDS_PER_MIB * size // MIB
        async with self._free:
            if (left := available_memory()) is not None:
                memory = min(memory, left // SHARE)
            is_gone, content = asyncio.Event(), msgspec.msgpack.encode(document)
            exchange = asyncio.create_task(_exchanged((memory, seconds), content, size + MAX_ANSWER, is_gone))
            try:
                reply = await asyncio.shield(exchange)
            finally:
                is_gone.set()
                await asyncio.wait([exchange])
        try:
            answer = await asyncio.to_thread(decoded, reply)
        except msgspec.DecodeError:
            answer = DocumentReply(problem=_TOO_LARGE.format(document.name))
        if answer.failure:
            raise EdgeformerError(f"A document could not be read: {answer.failure}")
        if answer.problem:
            raise DataError(answer.problem)
        return answer


async def _exchanged(limits: tuple[int, int], request: bytes, most: int, is_gone: asyncio.Event) -> bytes:
    """Send a request to a process, and return the answer, whose end is missing if the process was ended. It must not be
    canceled: asyncio waits for pipes that it has not connected yet (https://github.com/python/cpython/issues/103847),
    and for those that it has stopped reading.

    Args:
        limits: bytes of memory and seconds of processor time of the process.
        request: what it is sent.
        most: bytes of the answer.
        is_gone: set when nobody waits for it any more; the process then ends.

    Raises:
        DataError: the answer is larger.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "edgeformer_server.files.document_process", *map(str, limits)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ending = asyncio.create_task(_killed(process, is_gone))
    with suppress(BrokenPipeError, ConnectionResetError):  # it ended, or was killed for its memory or time
        process.stdin.write(request)
        await process.stdin.drain()
    process.stdin.close()
    reply = bytearray()
    while part := await process.stdout.read(CHUNK):
        if len(reply) <= most:
            reply += part
        else:
            is_gone.set()
    await process.wait()
    ending.cancel()
    if len(reply) > most:
        raise DataError("The document has too much text for one request; split it.")
    return bytes(reply)


async def _killed(process: Process, is_gone: asyncio.Event) -> None:
    await is_gone.wait()
    with suppress(ProcessLookupError):
        process.kill()
