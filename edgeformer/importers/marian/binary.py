"""Binary files (``.bin``): Marian's models, Bergamot's with 8-bit weights among them, and Bergamot's shortlists.

Layout of a model, little-endian: version (1) and number n of items, both u64; n headers of four u64 (length of the name
with its NUL, type, number of axes, size of the data); n names; the axes of each item as i32; a u64 number of padding
bytes, and these; then the data of each item. An 8-bit matrix is stored as ``(out, in)``, although its axes say ``(in,
out)``; an 8-bit embedding as its axes say. A factor follows its integers: ``integer = round(weight * factor)``.

Layout of a lexical shortlist (``lex.*.bin``), which says which target tokens each source token may become: six u64
(magic number, checksum, number of frequent tokens, number of best translations, number of offsets, number of list
entries); the offsets as u64; the entries as u32, sorted within a list.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import BinaryReader, begins, open_binary
from edgeformer.importers.model import Shortlist

VERSION = 1
MAX_ITEMS, MAX_NAME, MAX_AXES = 100_000, 4096, 8
HEADER = struct.Struct("<4Q")
FLOAT32, FLOAT16 = 0x404, 0x402
INT8_TYPES = {0x4101: "intgemm8", 0x10001: "intgemm8"}
PLAIN_TYPES = {FLOAT32: "<f4", FLOAT16: "<f2", 0x101: "<i1", 0x102: "<i2", 0x104: "<i4", 0x201: "<u1", 0x204: "<u4"}
EMBEDDINGS = ("Wemb", "encoder_Wemb", "decoder_Wemb")
SHORTLIST_MAGIC = 0xF11A48D5013417F5
SHORTLIST_HEADER = struct.Struct("<6Q")


@dataclass(frozen=True)
class QuantizedMatrix:
    """A weight in 8 bits with one factor, as Bergamot's engine multiplies it."""

    integers: NDArray[np.int8]
    """As the axes say: ``(in, out)``, or ``(V, D)`` for embeddings."""
    factor: float
    """``weight = integer / factor``."""

    @property
    def values(self) -> NDArray[np.float32]:
        """The weight in float32."""
        return self.integers.astype(np.float32) / np.float32(self.factor)


MarianItem = NDArray[Any] | QuantizedMatrix


def is_marian_binary(path: Path) -> bool:
    """Return whether a file begins like a binary model."""

    def check(reader: BinaryReader) -> bool:
        version, count, name, kind, axes, _ = reader.numbers("<6Q")
        header_fits = 0 < name <= MAX_NAME and kind < 2**20 and axes <= MAX_AXES
        return version == VERSION and 0 < count <= MAX_ITEMS and header_fits

    return begins(path, check)


def read_binary(path: Path) -> dict[str, MarianItem]:
    """Read a binary model."""
    with open_binary(path) as reader:
        version, count = reader.numbers("<2Q")
        if version != VERSION or not 0 < count <= MAX_ITEMS:
            raise ValueError("its header is not one")
        headers = [reader.numbers(HEADER.format) for _ in range(count)]
        if any(name > MAX_NAME or axes > MAX_AXES for name, _, axes, _ in headers):
            raise ValueError("the header of an item is not one")
        names = [reader.take(length).rstrip(b"\0").decode("utf-8", "replace") for length, *_ in headers]
        shapes = [reader.numbers(f"<{axes}i") for _, _, axes, _ in headers]
        reader.take(reader.number("<Q"))  # padding
        if len(set(names)) < count:
            raise ValueError("a name is duplicated")
        return {
            name: _item(name, kind, shape, reader.take(length))
            for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True)
        }


def _item(name: str, kind: int, shape: tuple[int, ...], data: bytes) -> MarianItem:
    if any(axis < 0 for axis in shape):
        raise ValueError(f"`{name}` has negative axes")
    count = int(np.prod(shape, dtype=object)) if shape else 1
    if kind in INT8_TYPES:
        if len(shape) != 2 or len(data) < count + 4:
            raise ValueError(f"`{name}` has the wrong size")
        (factor,) = struct.unpack_from("<f", data, count)
        if not 0 < factor < np.inf:
            raise ValueError(f"`{name}` has the factor {factor}")
        integers = np.frombuffer(data, np.int8, count)
        stored = integers.reshape(shape) if name in EMBEDDINGS else integers.reshape(shape[::-1]).T
        return QuantizedMatrix(stored, factor)
    if kind not in PLAIN_TYPES:
        raise ImporterError(f"Item `{name}` has the type {kind:#x}, which is not supported.")
    dtype = np.dtype(PLAIN_TYPES[kind])
    if len(data) < count * dtype.itemsize:
        raise ValueError(f"`{name}` has the wrong size")
    return np.frombuffer(data, dtype, count).reshape(shape)


def is_shortlist(path: Path) -> bool:
    """Return whether a file begins like a binary shortlist."""
    return begins(path, lambda reader: reader.number("<Q") == SHORTLIST_MAGIC)


def read_shortlist(path: Path, source_vocab_size: int, target_vocab_size: int) -> Shortlist:
    """Read a binary shortlist for vocabularies of these sizes."""
    with open_binary(path) as reader:
        magic, _, frequent, _, offset_count, token_count = reader.numbers(SHORTLIST_HEADER.format)
        if magic != SHORTLIST_MAGIC or reader.remaining != 8 * offset_count + 4 * token_count:
            raise ValueError("its size is not that of its lists")
        offsets = np.frombuffer(reader.take(8 * offset_count), "<u8")
        tokens = np.frombuffer(reader.take(4 * token_count), "<u4")
        is_known = frequent <= target_vocab_size and np.all(tokens < target_vocab_size)
        if offset_count != source_vocab_size + 1 or not is_known:
            raise ImporterError(f"Shortlist `{path}` is for other vocabularies than the model's.")
        if offsets[0] != 0 or offsets[-1] != token_count or np.any(offsets[1:] < offsets[:-1]):
            raise ValueError("its lists overlap")
    return Shortlist(frequent, offsets.astype(np.int64), tokens.astype(np.int32))
