"""Bergamot's lexical shortlists (``lex.*.bin``): for each source token, the target tokens that it may become.

Layout, little-endian: six u64 (magic number, checksum, number of frequent tokens, number of best translations, number
of offsets, number of list entries); the offsets as u64; the entries as u32, sorted within a list.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import begins, open_binary
from edgeformer.importers.model import Shortlist

MAGIC = 0xF11A48D5013417F5
HEADER = struct.Struct("<6Q")


def is_shortlist(path: Path) -> bool:
    """Return whether a file begins like a binary shortlist."""
    return begins(path, lambda reader: reader.number("<Q") == MAGIC)


def read_shortlist(path: Path, source_vocab_size: int, target_vocab_size: int) -> Shortlist:
    """Read a binary shortlist for vocabularies of these sizes."""
    with open_binary(path) as reader:
        magic, _, frequent, _, offset_count, token_count = reader.numbers(HEADER.format)
        if magic != MAGIC or reader.remaining != 8 * offset_count + 4 * token_count:
            raise ValueError("its size is not that of its lists")
        offsets = np.frombuffer(reader.take(8 * offset_count), "<u8")
        tokens = np.frombuffer(reader.take(4 * token_count), "<u4")
        is_known = frequent <= target_vocab_size and np.all(tokens < target_vocab_size)
        if offset_count != source_vocab_size + 1 or not is_known:
            raise ImporterError(f"Shortlist `{path}` is for other vocabularies than the model's.")
        if offsets[0] != 0 or offsets[-1] != token_count or np.any(offsets[1:] < offsets[:-1]):
            raise ValueError("its lists overlap")
    return Shortlist(frequent, offsets.astype(np.int64), tokens.astype(np.int32))
