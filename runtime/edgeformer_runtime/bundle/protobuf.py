"""The wire format of protobuf messages, for files of others that are looked at or changed without its library."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""


def fields(data: bytes, offset: int, end: int, what: str = "protobuf message") -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, start and end of each field of a message; lengths are not part of it.

    Raises:
        ValueError: it is damaged, or not ``what``, as the error says.
    """
    damage = f"it is truncated, or not a {what}"
    while offset < end:
        key, offset = read_varint(data, offset, end, damage)
        start, kind = offset, key & 7
        if kind == VARINT:
            _, offset = read_varint(data, offset, end, damage)
        elif kind == BYTES:
            length, start = read_varint(data, offset, end, damage)
            offset = start + length
        elif kind in (FIXED64, FIXED32):
            offset += 8 if kind == FIXED64 else 4
        if offset > end or kind not in (VARINT, BYTES, FIXED64, FIXED32) or key >> 32:
            raise ValueError(damage)
        yield key >> 3, kind, start, offset
    if offset > end:
        raise ValueError(damage)


def read_varint(data: bytes, offset: int, end: int, damage: str) -> tuple[int, int]:
    """Return an integer and where it ends.

    Raises:
        ValueError: there is none before ``end``, or it has more than 64 bits; ``damage`` is the message.
    """
    if offset < end and data[offset] < 0x80:  # as nearly all are
        return data[offset], offset + 1
    value = 0
    for shift, byte in zip(range(0, 70, 7), data[offset : min(end, offset + 10)], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and not value >> 64:
            return value, offset + shift // 7 + 1
    raise ValueError(damage)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, text or a message."""
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """An integer of 7 bits per byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))
