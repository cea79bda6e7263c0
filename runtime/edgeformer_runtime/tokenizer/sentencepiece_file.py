"""The ``tokenizer.json`` of a SentencePiece model.

It is a file of the ``tokenizers`` library, whose components come close to what SentencePiece does; other readers can
use it. The runtime takes the rules from it and follows them exactly. Four fields of the model, ``size``, ``unmatched``,
``surfaces`` and ``tied``, are its own; the library ignores them.
"""

# ruff: noqa: D101 - components have the names, and the meaning, that they have in the library.

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from edgeformer_runtime.limits import MAX_ADDED_TOKENS, MAX_AFFIX, MAX_CHARSMAP_BYTES, MAX_PIECE, MAX_VOCAB_SIZE
from edgeformer_runtime.tokenizer.normalizer import SPACE, Spaces

Id = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB_SIZE)]
Piece = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PIECE)]
Affix = Annotated[str, msgspec.Meta(max_length=MAX_AFFIX)]


class _Strict(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True): ...


class _Component(_Strict, kw_only=True, frozen=True, tag_field="type"): ...


class Precompiled(_Component, kw_only=True, frozen=True, tag="Precompiled"):
    precompiled_charsmap: Annotated[str, msgspec.Meta(max_length=MAX_CHARSMAP_BYTES * 4 // 3 + 4)]
    """In base 64."""


class StripSpace(_Component, kw_only=True, frozen=True, tag="Strip"):
    strip_left: bool
    strip_right: bool


class Prepend(_Component, kw_only=True, frozen=True, tag="Prepend"):
    prepend: Affix


class Replace(_Component, kw_only=True, frozen=True, tag="Replace"):
    pattern: dict[Literal["String", "Regex"], Affix]
    content: Affix


class Normalizers(_Component, kw_only=True, frozen=True, tag="Sequence"):
    normalizers: list[Precompiled | StripSpace | Prepend | Replace]


class ByteFallback(_Component, kw_only=True, frozen=True, tag="ByteFallback"): ...


class Fuse(_Component, kw_only=True, frozen=True, tag="Fuse"): ...


class StripTokens(_Component, kw_only=True, frozen=True, tag="Strip"):
    content: Affix
    start: int
    stop: int


class Decoders(_Component, kw_only=True, frozen=True, tag="Sequence"):
    decoders: list[Replace | ByteFallback | Fuse | StripTokens]


class _Model(_Component, kw_only=True, frozen=True):
    byte_fallback: bool
    """Whether bytes are encoded where characters are unknown."""
    size: Id | None = None
    """Entries of the vocabulary that the translation model has; those from here on are only for segmentation, and are
    encoded as the unknown token. ``None`` if it has all."""
    unmatched: list[Id] = []
    """Entries, beside the added tokens and bytes, that no text is encoded to: unused pieces, and pieces of the other
    language in a vocabulary that both share."""


class Unigram(_Model, kw_only=True, frozen=True, tag="Unigram"):
    vocab: list[tuple[Piece, float]]
    """Entries and their scores, by id."""
    unk_id: Id
    surfaces: bool = False
    """Whether a run of unknown characters that is, as a whole, an unmatched entry is encoded as that entry: what
    happens where the pieces of a text, rather than their ids, are looked up in a vocabulary."""


class BPE(_Model, kw_only=True, frozen=True, tag="BPE"):
    vocab: dict[Piece, Id]
    """Ids, in any order, without gaps."""
    merges: list[tuple[Piece, Piece]]
    """Pairs whose concatenation is an entry, the best first. The first pair of an entry ranks it."""
    tied: list[Id] = []
    """Indices of the merges with the score of the one before: of pairs with equal scores, the leftmost is merged."""
    unk_token: str
    fuse_unk: Literal[True] = True
    dropout: None = None
    continuing_subword_prefix: None = None
    end_of_word_suffix: None = None
    ignore_merges: Literal[False] = False


class AddedToken(_Strict, kw_only=True, frozen=True):
    """A token that is never split."""

    id: Id
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_AFFIX)]
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool


class SentencePieceFile(_Strict, kw_only=True, frozen=True):
    """Content of a tokenizer file that was made from a SentencePiece model."""

    version: Literal["1.0"] = "1.0"
    truncation: None = None
    padding: None = None
    added_tokens: Annotated[list[AddedToken], msgspec.Meta(max_length=MAX_ADDED_TOKENS)]
    """Special tokens (``special``), which no text is encoded to, and user-defined symbols."""
    normalizer: Normalizers
    pre_tokenizer: None = None
    post_processor: None = None
    decoder: Decoders
    model: Unigram | BPE

    @property
    def charsmap(self) -> bytes:
        """Character rules; see :mod:`~edgeformer_runtime.tokenizer.charsmap`."""
        first = self.normalizer.normalizers[0]
        assert isinstance(first, Precompiled)
        return base64.b64decode(first.precompiled_charsmap, validate=True)

    @property
    def spaces(self) -> Spaces:
        """Rules for spaces.

        Raises:
            ValueError: the components are not those of a SentencePiece model.
        """
        for spaces in _ALL_SPACES:
            same = self.normalizer.normalizers[1:] == _space_normalizers(spaces)
            if same and self.decoder == decoder(spaces):
                return spaces
        raise ValueError("its normalizer and decoder are not those of a SentencePiece model")


def is_sentencepiece(data: bytes | str) -> bool:
    """Return whether a tokenizer file has the normalizer of a SentencePiece model.

    Raises:
        msgspec.DecodeError: the file is not a JSON object.
    """
    return any(part.get("type") == "Precompiled" for part in _parts(msgspec.json.decode(data, type=_Head).normalizer))


def normalizer(charsmap: bytes, spaces: Spaces) -> Normalizers:
    """Return the components for these rules, to which :class:`SentencePieceFile` requires a file to be equal."""
    rules = Precompiled(precompiled_charsmap=base64.b64encode(charsmap).decode("ascii"))
    return Normalizers(normalizers=[rules, *_space_normalizers(spaces)])


def decoder(spaces: Spaces) -> Decoders:
    """Return the components that restore text."""
    strip = [StripTokens(content=" ", start=1, stop=0)] if spaces.remove_extra or spaces.dummy else []
    return Decoders(decoders=[Replace(pattern={"String": SPACE}, content=" "), ByteFallback(), Fuse(), *strip])


class _Head(msgspec.Struct):
    normalizer: Any = None


_ALL_SPACES = [Spaces(remove, dummy) for remove in (True, False) for dummy in ("prefix", "suffix", None)]


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """All components of a normalizer, those of sequences included."""
    pending = [part]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, dict):
            yield part
            pending.append(part.get("normalizers"))


def _space_normalizers(spaces: Spaces) -> list[StripSpace | Prepend | Replace]:
    parts: list[StripSpace | Prepend | Replace] = []
    if spaces.remove_extra:
        parts.append(StripSpace(strip_left=True, strip_right=True))
        parts.append(Replace(pattern={"Regex": " {2,}"}, content=" "))
    if spaces.dummy == "prefix":
        parts.append(Prepend(prepend=SPACE))
    if spaces.dummy == "suffix":
        parts.append(Replace(pattern={"Regex": r"(?![\s\S])"}, content=SPACE))
    parts.append(Replace(pattern={"String": " "}, content=SPACE))
    return parts
