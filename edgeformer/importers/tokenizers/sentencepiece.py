"""Conversion of SentencePiece models to ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.tokenizers.model_file import Kind, Piece, SentencePieceModel, read_model
from edgeformer_runtime.tokenizer.sentencepiece import SentencePiece
from edgeformer_runtime.tokenizer.sentencepiece_file import (
    BPE,
    AddedToken,
    SentencePieceFile,
    Unigram,
    decoder,
    normalizer,
)

_MERGED = (Kind.NORMAL, Kind.UNUSED)
_SEGMENTED = (*_MERGED, Kind.USER_DEFINED, Kind.BYTE)
_MAX_GAPS = 1024
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")


def sentencepiece_tokenizer(
    file: str | Path | SentencePieceModel,
    *,
    ids: Mapping[str, int] | None = None,
    special_tokens: Iterable[str] = (),
    unk_token: str | None = None,
) -> str:
    """Convert a SentencePiece model to the content of a ``tokenizer.json``.

    The tokenizer segments text exactly as SentencePiece does. Pieces that ``ids`` lacks become the unknown token.
    Entries that the SentencePiece model lacks have names and ids and can be decoded, but no text is encoded to them,
    except in a unigram model for text that is unknown to it and an entry as a whole.

    Args:
        file: the model file (``.model``, ``.spm``), or what was read from it.
        ids: the translation model's vocabulary, if its ids are not those of the file.
        special_tokens: tokens beside the control pieces of the file that no text is encoded to, and that are dropped
            when decoding, such as ``<pad>`` or language codes. Those without an id are appended to the vocabulary.
        unk_token: the unknown token; by default, that of the file.

    Raises:
        ConfigError: the arguments do not fit each other or the file.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported.
    """
    model, special_tokens = _read(file), tuple(special_tokens)
    vocabulary = _vocabulary(model, ids, special_tokens)
    unk_token = unk_token or model.unk_piece
    if unk_token not in vocabulary:
        raise ConfigError(f"The vocabulary lacks the unknown token `{unk_token}`; pass its own name.")
    kinds = {piece.text: piece.kind for piece in model.pieces}
    special = {text for text in vocabulary if kinds.get(text) in (Kind.CONTROL, Kind.UNKNOWN)}
    special |= {unk_token, *special_tokens}
    try:
        described = _file(model, vocabulary, special, unk_token, surfaces=ids is not None)
        content = msgspec.json.encode(described).decode("utf-8")
        SentencePiece(msgspec.json.decode(content, type=SentencePieceFile))
    except (msgspec.DecodeError, ValueError) as error:
        raise ImporterError(f"SentencePiece model `{model.path}` cannot be converted: {error}.") from None
    return content


def fairseq_ids(file: str | Path | SentencePieceModel, after: Sequence[str] = ()) -> dict[str, int]:
    """Number the pieces of a SentencePiece model as fairseq does, for mBART, M2M-100 and NLLB.

    Args:
        file: the model file, or what was read from it.
        after: tokens that follow the pieces, such as language codes.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
        ImporterError: the file cannot be read, is damaged, or uses what is not supported.
    """
    pieces = (piece.text for piece in _read(file).pieces if piece.kind not in (Kind.CONTROL, Kind.UNKNOWN))
    return {token: index for index, token in enumerate([*_FAIRSEQ, *pieces, *after])}


def _read(file: str | Path | SentencePieceModel) -> SentencePieceModel:
    return file if isinstance(file, SentencePieceModel) else read_model(file)


def _vocabulary(
    model: SentencePieceModel, ids: Mapping[str, int] | None, special_tokens: Iterable[str]
) -> dict[str, int]:
    """Return the translation model's entries and their ids, without gaps.

    Raises:
        ConfigError: ids are not whole numbers, there twice, or far apart.
    """
    vocabulary = {piece.text: index for index, piece in enumerate(model.pieces)} if ids is None else dict(ids)
    if not all(type(index) is int for index in vocabulary.values()):
        raise ConfigError("The ids of a vocabulary must be whole numbers.")
    for token in special_tokens:
        vocabulary.setdefault(token, max(vocabulary.values(), default=-1) + 1)
    taken = set(vocabulary.values())
    if len(taken) < len(vocabulary) or any(index < 0 for index in taken):
        raise ConfigError("The ids of a vocabulary must be different, and at least 0.")
    size = max(taken, default=-1) + 1
    if size > len(taken) + _MAX_GAPS:
        raise ConfigError(f"A vocabulary of {len(taken):,} entries has the id {size - 1:,}; check its ids.")
    vocabulary |= {_gap(index): index for index in range(size) if index not in taken}
    return vocabulary


def _gap(index: int) -> str:
    """Name an id without an entry. No text has it, since normalized text has no space."""
    return f"<unused {index}>"


def _file(
    model: SentencePieceModel,
    vocabulary: Mapping[str, int],
    special: Collection[str],
    unk_token: str,
    *,
    surfaces: bool,
) -> SentencePieceFile:
    """Describe a tokenizer. Pieces that the vocabulary lacks get ids after its end."""
    pieces = [piece for piece in model.pieces if piece.kind in _SEGMENTED and piece.text not in special]
    needed = [piece.text for piece in pieces if model.is_bpe or piece.kind is not Kind.UNUSED]
    if model.is_bpe:  # the library requires that what is merged is in the vocabulary
        needed += [character for piece in pieces if piece.kind in _MERGED for character in piece.text]
    extra = [text for text in dict.fromkeys(needed) if text not in vocabulary]
    ids = {**vocabulary, **{text: index for index, text in enumerate(extra, len(vocabulary))}}
    matched = {piece.text for piece in pieces if piece.kind is not Kind.UNUSED}
    user_defined = [piece.text for piece in pieces if piece.kind is Kind.USER_DEFINED]
    added = [(text, True) for text in special] + [(text, False) for text in user_defined]
    segmentation = Segmentation(
        ids=ids,
        size=len(vocabulary) if extra else None,
        unmatched=sorted(index for text, index in ids.items() if text not in matched and text not in special),
        unk_token=unk_token,
        surfaces=surfaces,
    )
    return SentencePieceFile(
        added_tokens=[
            AddedToken(id=ids[text], content=text, special=is_special)
            for text, is_special in sorted(added, key=lambda token: ids[token[0]])
        ],
        normalizer=normalizer(model.charsmap, model.spaces),
        decoder=decoder(model.spaces),
        model=(_bpe if model.is_bpe else _unigram)(model, pieces, segmentation),
    )


class Segmentation(NamedTuple):
    """The vocabulary of a file; see :class:`~edgeformer_runtime.tokenizer.sentencepiece_file.SentencePieceFile`."""

    ids: Mapping[str, int]
    size: int | None
    unmatched: list[int]
    unk_token: str
    surfaces: bool


def _unigram(model: SentencePieceModel, pieces: Sequence[Piece], vocabulary: Segmentation) -> Unigram:
    lowest = min(piece.score for piece in model.pieces if piece.kind is Kind.NORMAL)
    scores = {piece.text: piece.score for piece in pieces if piece.kind is Kind.NORMAL} | {
        # What SentencePiece 0.2 gives to user-defined symbols: more than to other pieces, and more to longer ones.
        piece.text: 0.1 * (len(piece.text.encode("utf-8")) - 1)
        for piece in pieces
        if piece.kind is Kind.USER_DEFINED
    }
    return Unigram(
        # The score of unknown text depends on the lowest score, which the rest must not change.
        vocab=[(text, scores.get(text, lowest)) for text in sorted(vocabulary.ids, key=vocabulary.ids.__getitem__)],
        unk_id=vocabulary.ids[vocabulary.unk_token],
        byte_fallback=model.byte_fallback,
        size=vocabulary.size,
        unmatched=vocabulary.unmatched,
        surfaces=vocabulary.surfaces,
    )


def _bpe(model: SentencePieceModel, pieces: Sequence[Piece], vocabulary: Segmentation) -> BPE:
    """Describe a BPE model."""
    parts = {piece.text for piece in pieces if piece.kind in _MERGED} | {
        text for text in vocabulary.ids if len(text) == 1
    }
    merges: list[tuple[str, str]] = []
    tied: list[int] = []
    before: Piece | None = None
    for piece in sorted((piece for piece in pieces if piece.kind in _MERGED), key=lambda piece: -piece.score):
        pairs = [(piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text))]
        pairs = [pair for pair in pairs if parts.issuperset(pair)]
        if not pairs:
            continue
        if before and before.score == piece.score:
            tied.append(len(merges))
        merges += pairs
        before = piece
    return BPE(
        vocab=dict(vocabulary.ids),
        merges=merges,
        tied=tied,
        unk_token=vocabulary.unk_token,
        byte_fallback=model.byte_fallback,
        size=vocabulary.size,
        unmatched=vocabulary.unmatched,
    )
