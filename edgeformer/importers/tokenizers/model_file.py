"""Reading of SentencePiece's model files (``.model``, ``.spm``)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer_runtime.errors import missing_package
from edgeformer_runtime.tokenizer.charsmap import EMPTY
from edgeformer_runtime.tokenizer.normalizer import Spaces

MAX_BYTES = 2**25
"""Maximum size of a model file; the largest vocabularies, of 256,000 pieces, have five megabytes."""

_CASE_FIELDS = {7: "encode_case", 8: "decode_case"}
"""Options that Marian's SentencePiece adds to the rules for normalization, by the number of the field."""


class Kind(Enum):
    """Purpose of a piece. The values are SentencePiece's."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never in text, such as ``</s>``."""
    USER_DEFINED = 4
    """Always one piece."""
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """An entry of the vocabulary."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class SentencePieceModel:
    """A SentencePiece model."""

    path: Path
    """Where it was read."""
    pieces: tuple[Piece, ...]
    """By id."""
    is_bpe: bool
    """Whether it is a BPE model, rather than a unigram model."""
    byte_fallback: bool
    """Whether unknown characters are encoded as bytes."""
    charsmap: bytes
    """Character rules; see :mod:`edgeformer_runtime.tokenizer.charsmap`."""
    spaces: Spaces
    """Rules for spaces."""

    @property
    def unk_piece(self) -> str:
        """The piece for unknown text."""
        return next(piece.text for piece in self.pieces if piece.kind is Kind.UNKNOWN)


def read_model(path: str | Path) -> SentencePieceModel:
    """Read a model file.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported.
    """
    path = Path(path)
    data = read_bytes(path, MAX_BYTES)
    try:
        return _model(path, _parsed(data))
    except (ValueError, UnicodeDecodeError) as error:
        raise ImporterError(f"SentencePiece model `{path}` is damaged or not supported: {error}.") from None


def _parsed(data: bytes) -> Any:
    """Parse a model file.

    Raises:
        ValueError: it is not one.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of protobuf's own classes
            from google.protobuf.message import DecodeError
            from sentencepiece import sentencepiece_model_pb2
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("A SentencePiece model", error.name, "import")) from None
    try:
        return sentencepiece_model_pb2.ModelProto.FromString(data)  # type: ignore[attr-defined] # made when imported
    except DecodeError:
        raise ValueError("it is not a SentencePiece model") from None


def _model(path: Path, proto: Any) -> SentencePieceModel:
    """Take from a model file what encoding and decoding need.

    Raises:
        ValueError: the model is not supported, or SentencePiece would not load it.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet

    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    if trainer.model_type not in (trainer.UNIGRAM, trainer.BPE):
        raise ValueError("only unigram and BPE models are supported")
    if not normalizer.escape_whitespaces:
        raise ValueError("models that do not escape spaces are not supported")
    if proto.denormalizer_spec.precompiled_charsmap:
        raise ValueError("models that change decoded text are not supported")
    for field in UnknownFieldSet(normalizer):
        # Marian's `spm_train` always states its two options for case, which SentencePiece does not know.
        if field.field_number not in _CASE_FIELDS:
            raise ValueError("it has rules for normalization that SentencePiece itself does not know")
        if field.data != 0:
            raise ValueError(f"it marks capitals (Marian's option `{_CASE_FIELDS[field.field_number]}`)")
    pieces = tuple(map(_piece, proto.pieces))
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError("it has a piece twice")
    if sum(piece.kind is Kind.UNKNOWN for piece in pieces) != 1:
        raise ValueError("it must have one unknown piece")
    if not any(piece.kind is Kind.NORMAL for piece in pieces):
        raise ValueError("it has no pieces for text")
    if not trainer.byte_fallback and any(piece.kind is Kind.BYTE for piece in pieces):
        raise ValueError("it has pieces for bytes, but does not use them")
    suffix = trainer.treat_whitespace_as_suffix
    return SentencePieceModel(
        path=path,
        pieces=pieces,
        is_bpe=trainer.model_type == trainer.BPE,
        byte_fallback=trainer.byte_fallback,
        charsmap=normalizer.precompiled_charsmap or EMPTY,
        spaces=Spaces(
            normalizer.remove_extra_whitespaces,
            None if not normalizer.add_dummy_prefix else "suffix" if suffix else "prefix",
        ),
    )


def _piece(proto: Any) -> Piece:
    try:
        kind = Kind(proto.type)
    except ValueError:
        raise ValueError("it has a piece of an unknown kind") from None
    if not isinstance(proto.piece, str) or not proto.piece:  # protobuf gives bytes if these are not UTF-8
        raise ValueError("it has a piece that is empty, or not UTF-8")
    if not math.isfinite(proto.score):
        raise ValueError("it has a score that is not finite")
    return Piece(proto.piece, proto.score, kind)
