"""Conversion of SentencePiece models to the tokenizer files of bundles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.tokenizers.ids import checked_ids, names_of, padded, unused_names, with_added
from edgeformer.importers.tokenizers.sentencepiece_model import SentencePieceModel, read_model
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.tokenizers.tokenizer_file import Normalization, SentencePieceFile

_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


def sentencepiece_tokenizer(
    file: str | Path | SentencePieceModel,
    *,
    ids: Mapping[str, int] | None = None,
    special_tokens: Iterable[str] = (),
    unk_token: str | None = None,
) -> str:
    """Convert a SentencePiece model to the content of a ``tokenizer.json``.

    SentencePiece divides text; each piece is then looked up in the vocabulary, and those that it lacks become the
    unknown token. Special tokens become control pieces, which SentencePiece finds in no text.

    Args:
        file: the model file (``.model``, ``.spm``), or what was read from it.
        ids: the translation model's vocabulary, if its ids are not those of the file.
        special_tokens: tokens beside the control pieces of the file that no text is encoded to, and that are dropped
            when decoding, such as ``<pad>`` or language codes. Those without an id are appended to the vocabulary.
        unk_token: the unknown token; by default, that of the file.

    Raises:
        ConfigError: the names of special tokens do not fit the vocabulary or the file.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported; or an id is not one.
    """
    model = file if isinstance(file, SentencePieceModel) else read_model(file)
    special: dict[str, None] = dict.fromkeys(special_tokens)
    ids = {name: index for index, name in enumerate(model.pieces)} if ids is None else checked_ids(ids, model.path)
    names = names_of(padded(with_added(ids, special.items())))
    unk_token = unk_token or model.unk_piece
    if unk_token not in names:
        raise ConfigError(f"The vocabulary lacks the unknown token `{unk_token}`; pass its own name.")
    proto = _with_control(
        model.proto, [name for name in (*special, *unused_names(names)) if name != unk_token], unk_token, names
    )
    try:
        found = _file(proto, names)
        _open(found, {*special, unk_token}, unk_token)
    except (ValueError, RuntimeError) as error:
        raise ImporterError(
            f"SentencePiece model `{model.path}` is damaged or not supported: {shortened(error).removesuffix('.')}."
        ) from None
    return msgspec.json.encode(found).decode("utf-8")


def fairseq_ids(file: str | Path | SentencePieceModel, after: Sequence[str] = ()) -> dict[str, int]:
    """Number the pieces of a SentencePiece model as fairseq does, for mBART, M2M-100 and NLLB.

    Args:
        file: the model file, or what was read from it.
        after: tokens that follow the pieces, such as language codes.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported.
    """
    model = file if isinstance(file, SentencePieceModel) else read_model(file)
    return {token: index for index, token in enumerate([*_FAIRSEQ, *model.text_pieces, *after])}


def _with_control(proto: Any, control: Collection[str], unk_token: str, names: Sequence[str]) -> Any:
    """Return a copy in which tokens are control pieces, and the unknown piece has its name in the vocabulary.

    Those that the model lacks are appended in the order of their ids, so that its pieces keep theirs.
    """
    changed = type(proto)()
    changed.CopyFrom(proto)
    missing = set(control)
    for piece in changed.pieces:
        if piece.piece in missing:
            piece.type = piece.CONTROL
            missing.discard(piece.piece)
        elif piece.type == piece.UNKNOWN and piece.piece != unk_token:
            piece.piece = changed.trainer_spec.unk_piece = unk_token
        elif piece.type != piece.UNKNOWN and piece.piece == unk_token:
            raise ConfigError(f"`{unk_token}` is a piece of the model, but not the unknown one; pass its own name.")
    for name in names:
        if name in missing:
            changed.pieces.add(piece=name, type=changed.SentencePiece.CONTROL)
    return changed


def _file(proto: Any, names: Sequence[str]) -> SentencePieceFile:
    """Write a model as a tokenizer file.

    Args:
        proto: the ``ModelProto``.
        names: entries by id.

    Raises:
        ValueError: it is damaged, exceeds a limit, or is neither unigram nor BPE.
    """
    trainer, pieces = proto.trainer_spec, [piece.piece for piece in proto.pieces]
    models = {trainer.UNIGRAM: "unigram", trainer.BPE: "bpe"}
    if trainer.model_type not in models:
        raise ValueError("it divides text into words or characters, but must be of the kind unigram or BPE")
    kinds = {
        kind.lower(): [number for number, piece in enumerate(proto.pieces) if piece.type == getattr(piece, kind)]
        for kind in ("CONTROL", "USER_DEFINED", "UNUSED", "BYTE")
    }
    if trainer.byte_fallback != bool(kinds["byte"]):
        raise ValueError("it must have 256 byte pieces exactly if its option `byte_fallback` is set")
    content = {
        "kind": "sentencepiece",
        "model": models[trainer.model_type],
        "pieces": pieces,
        "scores": [float(str(np.float32(piece.score))) for piece in proto.pieces],  # without digits beyond float32
        "unknown": next(number for number, piece in enumerate(proto.pieces) if piece.type == piece.UNKNOWN),
        **kinds,
        "unk_surface": trainer.unk_surface.split("\0")[0],
        "space_as_suffix": trainer.treat_whitespace_as_suffix,
        "normalizer": _normalization(proto.normalizer_spec),
        "denormalizer": _normalization(proto.denormalizer_spec) if proto.HasField("denormalizer_spec") else None,
        "vocabulary": None if pieces == names else list(names),
    }
    return msgspec.convert(content, SentencePieceFile)


def _normalization(spec: Any) -> Normalization:
    return Normalization(
        charsmap=spec.precompiled_charsmap,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        escape_whitespaces=spec.escape_whitespaces,
    )


def _open(file: SentencePieceFile, special: Collection[str], unk_token: str) -> None:
    """Open a file as the runtime does.

    Raises:
        ValueError, RuntimeError: the runtime cannot.
    """
    from edgeformer_runtime.tokenizers.sentencepiece import SentencePieceSegmenter

    SentencePieceSegmenter(file, special, unk_token)
