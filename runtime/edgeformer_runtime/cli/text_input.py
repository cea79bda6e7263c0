"""Lines to translate, from arguments, a file or standard input, in blocks of those that are available."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeformer_runtime.errors import DataError
from edgeformer_runtime.limits import MAX_LINE_BYTES

BLOCK_LINES = 512
"""Maximum number of lines in a block."""
_READ_BYTES = 1 << 20


@contextmanager
def line_blocks(
    text: tuple[str, ...], input_file: Path | None, *, keep_returns: bool = False
) -> Iterator[Iterator[list[str]]]:
    r"""Yield the blocks of lines of the chosen input, without line ends; only ``\n`` and ``\r\n`` end a line.

    A block from a pipe or a terminal has the lines that were available, so that the first line is not kept waiting for
    others.

    Args:
        text: arguments; if there are any, they are the only block.
        input_file: a UTF-8 file, plain or gzip; ``None`` or ``-`` reads standard input.
        keep_returns: leave the carriage return at the end of a line.

    Raises:
        DataError: standard input is closed; a line is not UTF-8 or has more than ``MAX_LINE_BYTES``; the gzip
            stream is damaged.
    """
    if text:
        yield iter([[_argument(word) for word in text]])
    elif input_file is None or str(input_file) == "-":
        yield decoded_blocks(standard_input().read1, "standard input", keep_returns)
    elif input_file.suffix.lower() == ".gz":
        with gzip.open(input_file) as packed:
            yield decoded_blocks(packed.read, str(input_file), keep_returns)
    else:
        with input_file.open("rb") as plain:
            yield decoded_blocks(plain.read1, str(input_file), keep_returns)


def standard_input() -> Any:
    """Standard input as bytes: a ``BufferedReader``, whose ``read1`` the type of ``sys.stdin`` does not promise.

    Raises:
        DataError: it is closed.
    """
    if sys.stdin is None:
        raise DataError("Standard input is closed; give TEXT, or a file with --input.")
    return sys.stdin.buffer


def _argument(word: str) -> str:
    """Decode an argument as UTF-8, like all other input, if the locale is one that cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:  # bytes outside the locale became surrogates
        return os.fsencode(word).decode("utf-8", "surrogateescape")
    return word


def decoded_blocks(read: Callable[[int], bytes], name: str, keep_returns: bool = False) -> Iterator[list[str]]:
    """Yield blocks of the lines that ``read`` gives as bytes; see :func:`line_blocks`."""
    number, rest = 0, b""
    try:
        while data := read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for start in range(0, len(lines), BLOCK_LINES):
                block = lines[start : start + BLOCK_LINES]
                yield _decoded(block, number, name, keep_returns)
                number += len(block)
            _refuse_long(rest, number + 1, name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"`{name}` is damaged: {error}. Download it again.") from None
    if rest:
        yield _decoded([rest], number, name, keep_returns)


def _decoded(lines: list[bytes], before: int, name: str, keep_returns: bool) -> list[str]:
    """Decode the lines of a block that follows a number of other lines."""
    decoded = []
    for number, line in enumerate(lines, before + 1):
        _refuse_long(line, number, name)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"Line {number} of {name} is not UTF-8 ({error.reason}); convert it, for example with iconv."
            ) from None
        decoded.append(text if keep_returns else text.removesuffix("\r"))
    return decoded


def _refuse_long(line: bytes, number: int, name: str) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise DataError(
            f"Line {number} of {name} has more than {MAX_LINE_BYTES:,} bytes; give text with one sentence per line."
        )
