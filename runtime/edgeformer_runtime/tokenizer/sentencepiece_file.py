"""The SentencePiece models (``.spm``) of bundles: what is checked before the library opens them.

A file is a ``ModelProto`` of `sentencepiece_model.proto`_, as SentencePiece writes it. Where the translation model
numbers its tokens in another way than SentencePiece numbers its pieces, the file also has :data:`VOCABULARY`, a field
from the range that the format leaves to others, and which SentencePiece ignores.

The library itself refuses damaged files, those with references out of bounds included. Left to check is what would cost
a translator much memory or time: many pieces, long pieces, and replacements that multiply the text.

.. _sentencepiece_model.proto: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgeformer_runtime.bundle import protobuf
from edgeformer_runtime.limits import MAX_AFFIX, MAX_CHARSMAP_BYTES, MAX_PIECE_BYTES, MAX_PIECES

SUFFIX = ".spm"
"""How the names of these files end."""
VOCABULARY = 200
"""Number of the field with the entries of the vocabulary in the order of their ids, in UTF-8, with NUL in between."""

_PIECES, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5
_UNK_SURFACE, _CHARSMAP = 44, 2
"""What unknown tokens are decoded to, a field of the trainer, and character rules, one of the two others."""
_KEY_OF_PIECES = _PIECES << 3 | 2
_fields = partial(protobuf.fields, what="SentencePiece model")


def read_vocabulary(data: bytes) -> list[str] | None:
    """Check a file, and return the entries of its vocabulary by id; ``None`` if they are the pieces.

    Raises:
        ValueError: the file is damaged, exceeds a limit, or has an entry twice.
    """
    vocabulary = None
    pieces, offset = _skip_pieces(data)
    for number, _, start, end in _fields(data, offset, len(data)):
        if number == _PIECES:
            pieces += 1
            if end - start > MAX_PIECE_BYTES:
                raise ValueError(f"it has a piece of more than {MAX_PIECE_BYTES} bytes")
        elif number in (_TRAINER, _NORMALIZER, _DENORMALIZER):
            for field, _, begin, stop in _fields(data, start, end):
                if number == _TRAINER and field == _UNK_SURFACE and stop - begin > MAX_AFFIX:
                    raise ValueError(f"it decodes unknown tokens to more than {MAX_AFFIX} bytes")
                if number != _TRAINER and field == _CHARSMAP:
                    _check_charsmap(data[begin:stop])
        elif number == VOCABULARY:
            vocabulary = data[start:end].decode("utf-8").split("\0")
    if max(pieces, len(vocabulary or ())) > MAX_PIECES:
        raise ValueError(f"it has more than {MAX_PIECES:,} pieces")
    if vocabulary is not None and len(set(vocabulary)) < len(vocabulary):
        raise ValueError("an entry is duplicated")
    return vocabulary


def with_vocabulary(data: bytes, names: Sequence[str]) -> bytes:
    """Return a file with the entries of a vocabulary.

    Raises:
        ValueError: an entry contains NUL.
    """
    if any("\0" in name for name in names):
        raise ValueError("an entry of the vocabulary contains NUL")
    content = "\0".join(names).encode("utf-8")
    return data + protobuf.field(VOCABULARY, content)


def _check_charsmap(charsmap: bytes) -> None:
    """Check character rules: the size of a trie in 4 bytes, the trie, and replacements, each of which ends with NUL.

    Raises:
        ValueError: they exceed a limit.
    """
    if len(charsmap) > MAX_CHARSMAP_BYTES:
        raise ValueError(f"its character rules have more than {MAX_CHARSMAP_BYTES:,} bytes")
    replacements = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    if (longest := max(map(len, replacements))) > MAX_AFFIX:
        raise ValueError(f"it replaces a character with {longest} bytes, but at most {MAX_AFFIX} are allowed")


def _skip_pieces(data: bytes) -> tuple[int, int]:
    """Return the number of pieces that the file begins with, and where they end; only those whose length has one byte.
    That is what :func:`_fields` would find, in a third of the time."""
    count = offset = 0
    last = len(data) - 1
    while offset < last and data[offset] == _KEY_OF_PIECES and data[offset + 1] < 0x80:
        offset += data[offset + 1] + 2
        count += 1
    return count, offset
