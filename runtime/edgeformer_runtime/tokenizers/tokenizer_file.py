"""Tokenizer files: what a ``tokenizer.json`` may have, whoever wrote it.

There are two kinds. Both hold the whole tokenizer, so that the TypeScript package reads the same file:

- :class:`LibraryFile` is a file of the ``tokenizers`` library with the components that this project writes. The library
  itself runs whatever a file describes: regular expressions of any cost, replacements that multiply the text, random
  dropout. A file is therefore read as the types below, and the library is given what was read, written again.
- :class:`SentencePieceFile` is a SentencePiece model: pieces with their scores, and rules for normalization.

``python -m tests.web.schema`` writes the JSON schema of both for the TypeScript package.
"""

# ruff: noqa: D101 - components have the names, and the meaning, that they have in the library.

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from edgeformer_runtime.bundle.protobuf import field, varint
from edgeformer_runtime.limits import (
    MAX_ADDED_TOKENS,
    MAX_AFFIX,
    MAX_CHARSMAP_BYTES,
    MAX_COMPONENTS,
    MAX_PIECE,
    MAX_PIECES,
    MAX_VOCAB_SIZE,
    Affix,
)

_CLITIC = r"['\u2019](?:s|m|d|re|ve|ll)(?![\w'\u2019])"
"""The end of an English contraction: ``'s`` of ``it's``."""

WORD_PATTERN = "|".join(
    (
        r" ?\w+?(?=n['\u2019]t(?!\w))",  # `do` of `don't` …
        r"n['\u2019]t(?!\w)",  # … and `n't`
        _CLITIC,
        rf" ?\w+(?!{_CLITIC})['\u2019](?=\w)",  # an elision: `l'` of `l'homme`
        r" ?\w+",
        r" ?[^\w\s]",
        r"\s",
    )
)
"""A word, an elision, the end of a contraction or a punctuation mark, with the space before it, or one white-space
character of any other kind. Splits French and English as the tokenizers of spaCy do."""

SPACE_PATTERN = r" ?<| ?[^\s<]+|\s"
"""Text between whitespace, with the space before it. ``<``, which begins every special token, is always separate, so no
merge can spell a special token."""

PATTERNS = (WORD_PATTERN, SPACE_PATTERN)
"""Every regular expression that tokenizers may use. Others could take exponential time, which their text does not
show."""

Id = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB_SIZE)]
Character = Annotated[str, msgspec.Meta(min_length=1, max_length=1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_AFFIX)]


class _Component(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """A component of the library; its tag is its type in the file."""


# Normalizers: text to text.


class Lowercase(_Component, tag="Lowercase"): ...


class Prepend(_Component, tag="Prepend"):
    prepend: Literal[" "]


Normalizer = Lowercase | Prepend


class Normalizers(_Component, tag="Sequence"):
    normalizers: Annotated[list[Normalizer], msgspec.Meta(max_length=MAX_COMPONENTS)]


# Pre-tokenizers: text to words, and decoders: tokens to text.


class ByteLevel(_Component, tag="ByteLevel"):
    add_prefix_space: bool
    trim_offsets: bool
    use_regex: bool


class Digits(_Component, tag="Digits"):
    individual_digits: bool


class WhitespaceSplit(_Component, tag="WhitespaceSplit"): ...


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression."""

    Regex: Literal[WORD_PATTERN, SPACE_PATTERN]  # type: ignore[valid-type] # which mypy takes for variables


class Split(_Component, tag="Split"):
    pattern: Pattern
    behavior: Literal["Isolated"]
    invert: bool


class Fuse(_Component, tag="Fuse"): ...


class StripTokens(_Component, tag="Strip"):
    content: Character
    start: Offset
    stop: Offset


PreTokenizer = ByteLevel | Digits | WhitespaceSplit | Split
Decoder = ByteLevel | Fuse | StripTokens


class PreTokenizers(_Component, tag="Sequence"):
    pretokenizers: Annotated[list[PreTokenizer], msgspec.Meta(max_length=MAX_COMPONENTS)]


class Decoders(_Component, tag="Sequence"):
    decoders: Annotated[list[Decoder], msgspec.Meta(max_length=MAX_COMPONENTS)]


# Models. Vocabularies and merges are data, whose size the file's size limits; the library reads them.


class BPE(_Component, tag="BPE"):
    vocab: msgspec.Raw
    merges: msgspec.Raw
    dropout: None = None
    unk_token: None = None
    continuing_subword_prefix: None = None
    end_of_word_suffix: None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False


class Unigram(_Component, tag="Unigram"):
    vocab: msgspec.Raw
    unk_id: Id
    byte_fallback: bool = False


class WordLevel(_Component, tag="WordLevel"):
    vocab: msgspec.Raw
    unk_token: Affix


class AddedToken(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A token that no text is encoded to."""

    id: Id
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_AFFIX)]
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool


class LibraryFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A tokenizer of the ``tokenizers`` library."""

    version: Literal["1.0"]
    truncation: None = None
    padding: None = None
    added_tokens: Annotated[list[AddedToken], msgspec.Meta(max_length=MAX_ADDED_TOKENS)]
    normalizer: Normalizer | Normalizers | None
    pre_tokenizer: PreTokenizer | PreTokenizers | None
    post_processor: None = None
    decoder: Decoder | Decoders | None
    model: BPE | Unigram | WordLevel


# SentencePiece models.

MAX_FLOAT32 = 3.4028234663852886e38
PieceNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PIECES)]
Score = Annotated[float, msgspec.Meta(ge=-MAX_FLOAT32, le=MAX_FLOAT32)]
PieceNumbers = Annotated[list[PieceNumber], msgspec.Meta(max_length=MAX_PIECES)]


class Normalization(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How text is normalized."""

    charsmap: Annotated[bytes, msgspec.Meta(max_length=MAX_CHARSMAP_BYTES)] = b""
    """Rules for characters: the size of a trie in 4 bytes, a double-array trie, and the replacements that it leads to,
    each of which ends with NUL; may be empty."""
    add_dummy_prefix: bool = True
    """Add a space before the first word."""
    remove_extra_whitespaces: bool = True
    """Remove spaces around the text, and all but one between words."""
    escape_whitespaces: bool = True
    """Write spaces as U+2581."""

    def __post_init__(self) -> None:
        """Refuse replacements that would multiply the text. SentencePiece itself checks the trie."""
        replacements = self.charsmap[4 + int.from_bytes(self.charsmap[:4], "little") :].split(b"\0")
        if (longest := max(map(len, replacements))) > MAX_AFFIX:
            raise ValueError(f"it replaces a character with {longest} bytes, but at most {MAX_AFFIX} are allowed")

    def proto(self) -> bytes:
        """Return the same as a ``NormalizerSpec`` of that file."""
        flags = (self.add_dummy_prefix, self.remove_extra_whitespaces, self.escape_whitespaces)
        return field(2, self.charsmap) + b"".join(b"%c%c" % (number << 3, flag) for number, flag in enumerate(flags, 3))


class SentencePieceFile(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="sentencepiece",
):
    """A SentencePiece model, and the ids of its pieces if they are not their numbers."""

    model: Literal["unigram", "bpe"]
    """Whether text is divided into the most probable pieces, or by merges."""
    pieces: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PIECE)]], msgspec.Meta(max_length=MAX_PIECES)
    ]
    """Pieces by their numbers."""
    scores: Annotated[list[Score], msgspec.Meta(max_length=MAX_PIECES)]
    """Score of each piece, rounded to float32: a log-probability, or how early a merge is made."""
    unknown: PieceNumber
    """The piece for text that no other piece stands for."""
    control: PieceNumbers = []
    """Pieces that stand for no text, such as the end token."""
    user_defined: PieceNumbers = []
    """Pieces that are found in a text before it is divided."""
    unused: PieceNumbers = []
    """Pieces that are not used."""
    byte: PieceNumbers = []
    """Pieces for the 256 bytes, of which unknown characters are made; empty if they become the unknown piece."""
    unk_surface: Affix = " \u2047 "
    """What the unknown piece is decoded to."""
    space_as_suffix: bool = False
    """Whether pieces have the space after a word, rather than before it."""
    normalizer: Normalization
    """What happens to a text before it is divided."""
    denormalizer: Normalization | None = None
    """What happens to a text after its pieces are joined."""
    vocabulary: Annotated[list[str], msgspec.Meta(max_length=MAX_PIECES)] | None = None
    """Entries by id, if ids are not those of the pieces: pieces, and names of tokens that are not. A text is divided
    into pieces, each of which is then looked up here."""

    def __post_init__(self) -> None:
        """Refuse what SentencePiece does not refuse, or says in words of its own file."""
        if len(self.scores) != len(self.pieces):
            raise ValueError("it must have a score for each piece")
        if max((self.unknown, *self.control, *self.user_defined, *self.unused, *self.byte)) >= len(self.pieces):
            raise ValueError("it has a number of a piece that does not exist")
        if self.vocabulary is not None and len({*self.vocabulary}) < len(self.vocabulary):
            raise ValueError("an entry is duplicated")

    def proto(self) -> bytes:
        """Return the same as a ``ModelProto`` of `sentencepiece_model.proto`_, which SentencePiece reads.

        .. _sentencepiece_model.proto: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
        """
        trainer = b"\x18%c" % (1 + (self.model == "bpe"))  # 3: kind of the model
        trainer += b"\xc0\x01%c" % self.space_as_suffix  # 24
        trainer += b"\x98\x02%c" % bool(self.byte)  # 35: whether it has pieces for bytes
        trainer += field(44, self.unk_surface.encode("utf-8"))
        parts = [*self._pieces(), field(2, trainer), field(3, self.normalizer.proto())]
        if self.denormalizer is not None:
            parts.append(field(5, self.denormalizer.proto()))
        return b"".join(parts)

    def _pieces(self) -> Iterator[bytes]:
        """Pieces as fields of the message; this is most of the time that it takes to open a model."""
        kinds = np.ones(len(self.pieces), np.uint8)  # in the order of `SentencePiece.Type`
        for kind, numbers in enumerate(([self.unknown], self.control, self.user_defined, self.unused, self.byte), 2):
            kinds[numbers] = kind
        # A piece is its name, score and kind. What is before and after the name does not depend on it.
        ends = np.zeros(len(self.pieces), [("2", "u1"), ("score", "<f4"), ("3", "u1"), ("kind", "u1")])
        ends["2"], ends["score"], ends["3"], ends["kind"] = 0x15, self.scores, 0x18, kinds
        end, size = ends.tobytes(), ends.itemsize
        starts = []
        for length in range(4 * MAX_PIECE + 1):
            start = b"\x0a" + varint(length)
            starts.append(b"\x0a" + varint(len(start) + length + size) + start)
        for number, piece in enumerate(self.pieces):
            name = piece.encode("utf-8")
            yield starts[len(name)] + name + end[size * number : size * (number + 1)]


class _Kind(msgspec.Struct):
    kind: Any = None


def read_tokenizer_file(data: bytes | str) -> LibraryFile | SentencePieceFile:
    """Read and check a tokenizer file.

    Raises:
        msgspec.DecodeError: it is not JSON, has a component that is not allowed, or exceeds a limit.
        RecursionError: it is nested too deeply.
    """
    if msgspec.json.decode(data, type=_Kind).kind is None:
        return msgspec.json.decode(data, type=LibraryFile)
    return msgspec.json.decode(data, type=SentencePieceFile)
