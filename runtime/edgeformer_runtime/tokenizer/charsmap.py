"""Character rules of SentencePiece models (``precompiled_charsmap``): which text is replaced by which.

A charsmap is the size of a trie in bytes (uint32), the trie, and the replacements, each ended by NUL. The trie is a
double array of Darts-clone: little-endian units of 32 bits, whose keys are UTF-8. The state after a unit is its index
XOR its offset; the next unit is at the state XOR the next byte, if that unit's label is this byte. If a key ends at a
unit, the unit at the state itself holds the key's value: the start of its replacement.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.limits import MAX_AFFIX, MAX_CHARSMAP_BYTES

EMPTY = struct.pack("<I", 1024) + bytes(1024) + b"\0"
"""A charsmap without rules."""

_VALUE, _LABEL, _LEAF = 1 << 31, 1 << 31 | 0xFF, 1 << 8
_MAX_CACHED = 2**16
"""Transitions kept in memory: far more than the characters of a few languages, and less than 20 MiB."""


class _Node:
    """A state of the trie after a whole character."""

    __slots__ = ("children", "replacement", "state")

    def __init__(self, state: int, replacement: str | None) -> None:
        self.state, self.replacement = state, replacement
        self.children: dict[str, _Node | None] = {}


class Charsmap:
    """Replaces text by rules, the longest key first. Thread-safe.

    The trie is walked when a character is first seen: unpacking all of its 200,000 keys would take seconds.

    Args:
        data: the charsmap.

    Raises:
        ValueError: the charsmap is damaged, or a replacement is too long.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_CHARSMAP_BYTES:
            raise ValueError(f"the charsmap has {len(data):,} bytes, but may have at most {MAX_CHARSMAP_BYTES:,}")
        size = struct.unpack_from("<I", data)[0] if len(data) > 4 else 0
        if not size or size % 1024 or size + 4 >= len(data):
            raise ValueError("the charsmap is truncated")
        units = np.frombuffer(data, "<u4", size // 4, offset=4)
        self._replacements = data[4 + size :]
        _check_replacements(self._replacements)
        _check_units(units, self._replacements)
        self._units: list[int] = units.tolist()
        self._root = _Node(_offset(self._units[0]), None)
        self._cached = 0
        self._later = _later_characters(units)
        self._singles = _Singles(self)

    @property
    def has_double_spaces(self) -> bool:
        """Whether a replacement has two spaces in a row."""
        return b"  " in self._replacements

    def replace(self, text: str, kept: dict[str, Sequence[str]]) -> str:
        """Replace the keys in a text; see :meth:`chunks`."""
        if self._later.isdisjoint(text) and (not kept or kept.keys().isdisjoint(text)):
            return text.translate(self._singles)
        return "".join(self.chunks(text, kept))

    def chunks(self, text: str, kept: dict[str, Sequence[str]]) -> list[str]:
        """Split a text into keys and single characters, and replace the keys.

        Args:
            text: any text.
            kept: strings that are never replaced, by their first characters, longest first. They go before keys.

        Returns:
            Replacements, and characters and strings that stay as they are.
        """
        chunks = []
        position, length, root = 0, len(text), self._root
        while position < length:
            character = text[position]
            if kept and (match := _prefix(text, position, kept.get(character, ()))):
                chunks.append(match)
                position += len(match)
                continue
            # Walk the trie for as long as keys go on, and take the replacement of the last key that was complete.
            chunk, end = character, position + 1
            node = root
            for index in range(position, min(length, position + MAX_AFFIX)):
                try:
                    child = node.children[text[index]]
                except KeyError:
                    child = self._child(node, text[index])
                if child is None:
                    break
                node = child
                if node.replacement is not None:
                    chunk, end = node.replacement, index + 1
            chunks.append(chunk)
            position = end
        return chunks

    def single(self, character: str) -> str:
        """Return what replaces a character on its own."""
        node = self._child(self._root, character)
        return character if node is None or node.replacement is None else node.replacement

    def _child(self, node: _Node, character: str) -> _Node | None:
        """Walk the trie along the bytes of a character, and remember the result."""
        if self._cached >= _MAX_CACHED:
            self._root.children, self._cached = {}, 0
        state, unit = node.state, 0
        child = None
        for byte in character.encode("utf-8"):
            unit = self._units[state ^ byte]
            # The unit belongs to this state only if it has the byte as its label; NUL is the label of values.
            if byte == 0 or unit & _LABEL != byte:
                break
            state ^= byte ^ _offset(unit)
        else:
            child = _Node(state, self._replacement(self._units[state]) if unit & _LEAF else None)
        node.children[character] = child
        self._cached += 1
        return child

    def _replacement(self, unit: int) -> str:
        start = unit & ~_VALUE
        return self._replacements[start : self._replacements.index(b"\0", start)].decode("utf-8")


class _Singles(dict[int, str]):
    """Table of :meth:`str.translate` for text in which no key has several characters."""

    def __init__(self, charsmap: Charsmap) -> None:
        self._charsmap = charsmap

    def __missing__(self, code: int) -> str:
        if len(self) >= _MAX_CACHED:
            self.clear()
        replacement = self[code] = self._charsmap.single(chr(code))
        return replacement


def _prefix(text: str, position: int, candidates: Sequence[str]) -> str | None:
    return next((candidate for candidate in candidates if text.startswith(candidate, position)), None)


def _offset(unit: int) -> int:
    """Return the offset of a unit: its upper 22 bits, times 256 if bit 9 is set."""
    return unit >> 10 << ((unit & 0x200) >> 6)


def _check_replacements(replacements: bytes) -> None:
    if not replacements.endswith(b"\0"):
        raise ValueError("the charsmap is truncated")
    try:
        longest = max(map(len, replacements.decode("utf-8").split("\0")))
    except UnicodeDecodeError:
        raise ValueError("the charsmap's replacements are not UTF-8") from None
    if longest > MAX_AFFIX:
        raise ValueError(f"the charsmap has a replacement of {longest} characters, but {MAX_AFFIX} are allowed")


def _check_units(units: NDArray[np.uint32], replacements: bytes) -> None:
    """Check that no walk leaves the trie, and that every value is the start of a character of the replacements."""
    indices = np.arange(len(units), dtype=np.int64)
    wide = units.astype(np.int64)
    states = indices ^ (wide >> 10 << ((wide & 0x200) >> 6))  # see `_offset`
    inner = wide < _VALUE
    values = wide[~inner] & ~_VALUE
    starts = np.frombuffer(replacements, np.uint8) & 0xC0 != 0x80  # all bytes but those that continue a character
    # From a state, units at the state XOR 0 … 255 are read, which are those up to the state with all lower bits set;
    # and where a unit says that a key ends, the unit at the state itself must be a value.
    if (
        (states[inner] | 0xFF).max(initial=0) >= len(units)
        or values.max(initial=0) >= len(replacements)
        or not starts[values].all()
        or inner[states[inner & (wide & _LEAF != 0)]].any()
    ):
        raise ValueError("the charsmap's trie is damaged")


def _later_characters(units: NDArray[np.uint32]) -> frozenset[str]:
    """Return all characters of keys but the first ones. A text without any of them has keys of one character only.

    All keys are walked at the same time, a byte per turn. What is reached on several ways with the same half of a
    character is kept once, since keys share their ends.

    Raises:
        ValueError: keys are too long, or without end.
    """
    wide = units.astype(np.int64)
    following = np.arange(len(units)) ^ (wide >> 10 << ((wide & 0x200) >> 6))
    labels = wide & 0xFF
    # A unit with a label stands at its parent's state XOR the label, so that the XOR of both is the parent's state.
    # Sorted by it, the children of a state are next to each other.
    children = np.flatnonzero((wide < _VALUE) & (labels != 0))
    children = children[np.argsort(children ^ labels[children])]
    parents = children ^ labels[children]
    is_parent = np.isin(np.arange(len(units)), parents)
    # What is reached after so many bytes: states, and of the character that is being read its code, the number of
    # missing bytes, and whether it is a later one.
    reached = np.array([[following[0], 0, 0, 0]])
    found: set[int] = set()
    total = 0
    for depth in range(4 * MAX_AFFIX):
        # 1. Find the children of every state: `counts` of them, from `first` in the sorted list.
        states, codes, missing, later = reached.T
        first = np.searchsorted(parents, states)
        counts = np.searchsorted(parents, states, "right") - first
        total += int(counts.sum())
        if not counts.any() or total > 4 * len(units):  # a damaged trie may have loops
            break
        # 2. List them: which entry of `reached` each follows, and its unit.
        parent = np.repeat(np.arange(len(states)), counts)
        index = children[np.arange(len(parent)) + np.repeat(first - np.cumsum(counts) + counts, counts)]
        # 3. Decode UTF-8: a byte that starts a character has its first bits, and says how many bytes follow, from none
        #    to three; any other adds six bits.
        byte, starts = labels[index], missing[parent] == 0
        sizes = (byte >= 0xC0).astype(np.int64) + (byte >= 0xE0) + (byte >= 0xF0)
        codes = np.where(starts, byte & (0x7F >> sizes + (sizes > 0)), codes[parent] << 6 | byte & 0x3F)
        missing = np.where(starts, sizes, missing[parent] - 1)
        later = np.where(starts, depth > 0, later[parent])
        # 4. Note the characters that are complete and not the first ones, and go on from states that have children.
        found.update(codes[(missing == 0) & (later != 0)].tolist())
        states = following[index]
        reached = np.stack([states, codes * (missing > 0), missing, later], axis=1)[is_parent[states]]
        reached = np.unique(reached, axis=0)
    if counts.any():
        raise ValueError("the charsmap's trie is damaged, or its keys are too long")
    return frozenset(chr(code) for code in found if code < 0x110000)
