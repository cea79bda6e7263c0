"""Reading of SentencePiece's model files (``.model``, ``.spm``)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer_runtime.errors import missing_package

MAX_BYTES = 2**25
"""Maximum size of a model file; the largest vocabularies, of 256,000 pieces, have five megabytes."""

_CASE_FIELDS = {7: "encode_case", 8: "decode_case"}
"""Options that Marian's SentencePiece adds to the rules for normalization, by the number of the field."""


@dataclass(frozen=True)
class SentencePieceModel:
    """A SentencePiece model."""

    path: Path
    """Where it was read."""
    proto: Any
    """Its ``ModelProto``; not to be changed."""

    @property
    def pieces(self) -> list[str]:
        """Entries by id."""
        return [piece.piece for piece in self.proto.pieces]

    @property
    def text_pieces(self) -> list[str]:
        """Entries that stand for text: neither control pieces, such as ``</s>``, nor the unknown piece."""
        pieces = self.proto.pieces
        return [piece.piece for piece in pieces if piece.type not in (piece.CONTROL, piece.UNKNOWN)]

    @property
    def unk_piece(self) -> str:
        """The piece for unknown text."""
        return next(str(piece.piece) for piece in self.proto.pieces if piece.type == piece.UNKNOWN)


def read_model(path: str | Path) -> SentencePieceModel:
    """Read a model file.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported.
    """
    path = Path(path)
    data = read_bytes(path, MAX_BYTES)
    try:
        proto = parsed(data)
        _refuse_unknown(proto)
    except ValueError as error:
        raise ImporterError(f"SentencePiece model `{path}` is damaged or not supported: {error}.") from None
    return SentencePieceModel(path, proto)


def parsed(data: bytes) -> Any:
    """Parse a ``ModelProto``; of nothing, make an empty one.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
        ValueError: the data is damaged.
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


def _refuse_unknown(proto: Any) -> None:
    """Refuse rules that SentencePiece itself would not follow, and what it could not open.

    Raises:
        ValueError: the model has them.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet

    for field in UnknownFieldSet(proto.normalizer_spec):
        # Marian's `spm_train` always states its two options for case, which SentencePiece does not know.
        if field.field_number not in _CASE_FIELDS:
            raise ValueError("it has rules for normalization that SentencePiece itself does not know")
        if field.data != 0:
            raise ValueError(f"it marks capitals (Marian's option `{_CASE_FIELDS[field.field_number]}`)")
    if sum(piece.type == piece.UNKNOWN for piece in proto.pieces) != 1:
        raise ValueError("it must have one unknown piece")
    pieces = [piece.piece for piece in proto.pieces]
    if not all(isinstance(piece, str) and piece for piece in pieces):  # protobuf gives bytes if these are not UTF-8
        raise ValueError("it has a piece that is empty, or not UTF-8")
    if len({*pieces}) < len(pieces):
        raise ValueError("it has a piece twice")
