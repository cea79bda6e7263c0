"""Bergamot's lexical shortlists (``lex.*.bin``): for each source token, the target tokens that it may become.

Layout, little-endian: six u64 (magic number, checksum, number of frequent tokens, number of best translations, number
of offsets, number of list entries); the offsets as u64; the entries as u32, sorted within a list.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.model import Shortlist

MAGIC = 0xF11A48D5013417F5
HEADER = struct.Struct("<6Q")


def is_shortlist(path: Path) -> bool:
    """Return whether a file begins like a binary shortlist."""
    try:
        with path.open("rb") as stream:
            return stream.read(8) == struct.pack("<Q", MAGIC)
    except OSError:
        return False


def read_shortlist(path: Path, source_vocab_size: int, target_vocab_size: int) -> Shortlist:
    """Read a binary shortlist.

    Args:
        path: the file.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary; list entries are below this.

    Raises:
        ImporterError: the file is damaged, or is for other vocabularies.
    """
    data = path.read_bytes() if path.stat().st_size >= HEADER.size else b""
    if len(data) < HEADER.size:
        raise _damaged(path, "it ends too early")
    magic, _, frequent, _, offset_count, token_count = HEADER.unpack_from(data)
    if magic != MAGIC or len(data) != HEADER.size + 8 * offset_count + 4 * token_count:
        raise _damaged(path, "its size is not that of its lists")
    offsets = np.frombuffer(data, "<u8", offset_count, HEADER.size)
    tokens = np.frombuffer(data, "<u4", token_count, HEADER.size + 8 * offset_count)
    if offset_count != source_vocab_size + 1 or not _fits(tokens, target_vocab_size) or frequent > target_vocab_size:
        raise ImporterError(f"Shortlist `{path}` is for other vocabularies than the model's.")
    if offsets[0] != 0 or offsets[-1] != token_count or np.any(offsets[1:] < offsets[:-1]):
        raise _damaged(path, "its lists overlap")
    return Shortlist(int(frequent), offsets.astype(np.int64), tokens.astype(np.int32))


def _fits(tokens: NDArray[np.uint32], vocab_size: int) -> bool:
    return tokens.size == 0 or int(tokens.max()) < vocab_size


def _damaged(path: Path, why: str) -> ImporterError:
    return ImporterError(f"Shortlist `{path}` is damaged: {why}. Download it again.")
