"""SentencePiece models, from their own files (``.model``, ``.spm``) and from ``tokenizer.json``."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.archive import read_bytes, read_json
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


SPACES = {"Regex": " {2,}"}
"""Spaces that the converters of ``transformers`` replace with a single one."""


def read_library_file(path: Path) -> SentencePieceModel:
    """Rebuild a SentencePiece model from the ``tokenizer.json`` that ``transformers`` saves for it.

    Its components divide some text otherwise than SentencePiece does, but its data are those of the model: pieces,
    scores or the order of merges, and rules for characters.
    """
    try:
        return _model(path, read_json(path, dict[str, Any]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else "it is damaged"
        raise ImporterError(
            f"`{path}` does not hold all of its SentencePiece model: {why}. Give the model itself with --tokenizer."
        ) from None


def _model(path: Path, tree: Mapping[str, Any]) -> SentencePieceModel:
    model, normalizers, splitters = tree["model"], _parts(tree["normalizer"]), _parts(tree["pre_tokenizer"])
    rules = [part["precompiled_charsmap"] for part in normalizers if part["type"] == "Precompiled"]
    schemes = [part.get("prepend_scheme", "always") for part in splitters if part["type"] == "Metaspace"]
    others = [part for part in normalizers if part["type"] not in ("Precompiled", "Strip")]
    if len(rules) != 1 or any(part.get("pattern") != SPACES for part in others):
        raise ValueError("it lacks the rules for characters, or has others")
    if len(schemes) != 1 or schemes[0] not in ("always", "first"):
        raise ValueError("it does not add a space before a text")
    if is_bpe := model["type"] == "BPE":
        names, unk = sorted(model["vocab"], key=model["vocab"].__getitem__), model["unk_token"]
        scores: dict[str, float] = {}
        for number, pair in enumerate(model["merges"]):
            scores.setdefault("".join(pair if isinstance(pair, list) else pair.split(" ")), -number)
    elif model["type"] == "Unigram":
        names, unk = [name for name, _ in model["vocab"]], model["vocab"][model["unk_id"]][0]
        scores = dict(model["vocab"])
    else:
        raise ValueError("it has neither scores nor merges")
    if "unk" not in unk.lower():  # transformers writes a fixed id for models of its own T5
        raise ValueError(f"its unknown piece is {unk[:40]!r}")
    proto = parsed(b"")
    kind = proto.SentencePiece
    kinds = {
        entry["content"]: kind.CONTROL if entry["special"] else kind.USER_DEFINED for entry in tree["added_tokens"]
    }
    if model["byte_fallback"]:
        kinds |= {f"<0x{byte:02X}>": kind.BYTE for byte in range(256)}
    kinds[unk] = kind.UNKNOWN
    proto.trainer_spec.model_type = proto.trainer_spec.BPE if is_bpe else proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = model["byte_fallback"]
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(rules[0], validate=True)
    for name in names:
        proto.pieces.add(piece=name, score=scores.get(name, 0), type=kinds.get(name, kind.NORMAL))
    return SentencePieceModel(path, proto)


def _parts(component: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The components of a sequence, or the component itself."""
    if component is None:
        return []
    return [*component.get("normalizers", ()), *component.get("pretokenizers", ())] or [component]
