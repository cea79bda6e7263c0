"""Tokenizers for vocabularies, by the program that divides text into their entries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer, models, pre_tokenizers

from edgeformer.errors import ImporterError
from edgeformer.importers.tokenizers.sentencepiece import sentencepiece_tokenizer
from edgeformer_runtime.bundle.text_format import TextFormat

_PART = re.compile("\u2581.+|.+@@|\uffed.+|.+\uffed", re.DOTALL)
"""Part of a word, as SentencePiece, subword-nmt and OpenNMT's tokenizer mark it."""


@dataclass(frozen=True)
class TextFiles:
    """Files of a model that are about text; both sides may have the same ones."""

    vocabularies: tuple[Path, Path]
    """Source and target vocabulary."""
    pieces: tuple[Path | None, Path | None] = (None, None)
    """SentencePiece models whose pieces the vocabularies give ids to; ``None`` if text is split at spaces."""

    def read(self) -> list[Path]:
        """All files."""
        return [*self.vocabularies, *filter(None, self.pieces)]


@dataclass(frozen=True)
class TokenizerPair:
    """Both tokenizers."""

    source: str
    """Content of its ``tokenizer.json``."""
    target: str
    """Equal to the source's if both sides share one."""
    sizes: tuple[int, int]
    """Number of entries; special tokens that the model does not have follow its own."""
    text: TextFormat
    notes: tuple[str, ...] = ()
    """Assumptions about the text, as sentences."""


def text_format(**fields: Any) -> TextFormat:
    """Name the special tokens, and what is around the tokens of a text; see :class:`TextFormat` for the fields.

    Raises:
        ImporterError: a name, which may come from a file, is too long, or has control characters.
    """
    try:
        return msgspec.convert(fields, TextFormat)
    except msgspec.ValidationError as error:
        raise ImporterError(f"A special token or a language has a name that is not supported: {error}.") from None


def tokenizer_pair(
    files: TextFiles,
    vocabularies: Sequence[Mapping[str, int]],
    special_tokens: Iterable[str],
    text: TextFormat,
    notes: tuple[str, ...] = (),
) -> TokenizerPair:
    """Make the tokenizers of both sides.

    Args:
        files: says which SentencePiece models divide text.
        vocabularies: of the source and of the target, without gaps.
        special_tokens: entries of either that no text is encoded to.
        text: names the unknown token.
        notes: assumptions about the text, as sentences.
    """
    special = list(special_tokens)
    source, target = (
        text_tokenizer(ids, [name for name in special if name in ids], text.unk, pieces)
        for ids, pieces in zip(vocabularies, files.pieces, strict=True)
    )
    return TokenizerPair(source, target, (len(vocabularies[0]), len(vocabularies[1])), text, notes)


def side_of(file: Path) -> int | None:
    """Which side a file is for, by its name: 0 for the source, 1 for the target."""
    match = re.search(r"(?:^|[._-])(?:(src|source)|trg|tgt|target)(?=[._-]|vocab|$)", file.name)
    return None if match is None else int(match[1] is None)


def start_token(taken: Collection[str]) -> str:
    """Name the zero vector that a decoder starts from: ``<s>``, or another name if a vocabulary has that, as those of
    ``spm_train`` do."""
    return next(name for name in chain(("<s>", "<start>"), map("<start {}>".format, count(2))) if name not in taken)


def text_tokenizer(
    ids: Mapping[str, int],
    special_tokens: Iterable[str],
    unk_token: str,
    pieces: Path | None,
) -> str:
    """Return the content of a ``tokenizer.json``.

    Args:
        ids: the vocabulary, without gaps.
        special_tokens: entries that no text is encoded to, and that are dropped when decoding.
        unk_token: the unknown token.
        pieces: a SentencePiece model; without it, text is split at spaces.
    """
    if pieces is not None:
        return sentencepiece_tokenizer(pieces, ids=ids, special_tokens=special_tokens, unk_token=unk_token)
    parts = [name for name in ids if _PART.fullmatch(name)]
    if len(parts) > len(ids) / 100:
        raise ImporterError(
            f"The vocabulary has parts of words, such as `{parts[0][:40]}`, but there is no tokenizer beside it; give "
            "the SentencePiece model with --tokenizer."
        )
    tokenizer = Tokenizer(models.WordLevel(dict(ids), unk_token=unk_token))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*special_tokens, unk_token])
    return tokenizer.to_str()
