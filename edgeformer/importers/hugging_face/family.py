"""A family of models, as ``model_type`` of ``config.json`` names it, and vocabularies that several families have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Checkpoint, Rows
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.languages import M2M, codes
from edgeformer.importers.tokenizers import names_of, padded, sentencepiece_tokenizer, with_added
from edgeformer.importers.tokenizers.sentencepiece_model import SentencePieceModel

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"


@dataclass(frozen=True)
class SideVocabulary:
    """Tokenizer of the source or the target."""

    content: str
    """Content of its ``tokenizer.json``."""
    names: Sequence[str]
    """Entries by id."""


@dataclass(frozen=True, kw_only=True)
class ModelVocabulary:
    """Both tokenizers, and what the model expects around a text."""

    source: SideVocabulary
    target: SideVocabulary
    unk: str
    """The unknown token."""
    prefix: tuple[str, ...] = ()
    """Tokens before a source."""
    suffix: tuple[str, ...]
    """Tokens after a source."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """Token of each language, by code."""
    forces_target: bool = False
    """Whether outputs begin with the token of the target language."""
    source_language: str = ""
    """BCP 47 tag, if the folder states it."""
    target_language: str = ""
    """BCP 47 tag, if the folder states it."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """What is special about the models of a family."""

    convert: Callable[[Mapping[str, Any], Checkpoint], tuple[dict[str, Any], Rows]]
    """Takes ``config.json`` and a checkpoint, whose weights it converts; returns section ``[model]`` of the recipe, and
    the rows of both embeddings."""
    vocabulary: Callable[[ModelFolder, Rows], ModelVocabulary]
    """Reads the tokenizers, and says what is around a text."""
    notes: tuple[str, ...] = ()
    """Differences from the original models, as sentences."""


def sentencepiece_side(
    model: SentencePieceModel, ids: Mapping[str, int], rows: int, special: Iterable[str], unk: str
) -> SideVocabulary:
    """Convert a SentencePiece model whose pieces have other ids, for an embedding of ``rows`` entries.

    ``special`` entries are those that no text is encoded to, and ``unk`` is the unknown token.
    """
    if unk not in ids:
        raise ImporterError(f"The vocabulary of `{model.path.parent}` lacks `{unk}`.")
    ids = padded(ids, rows)
    special = [name for name in dict.fromkeys(special) if name in ids]
    return SideVocabulary(sentencepiece_tokenizer(model, ids=ids, special_tokens=special, unk_token=unk), names_of(ids))


def multilingual_side(
    folder: ModelFolder, model: SentencePieceModel, ids: Mapping[str, int], rows: int, pattern: re.Pattern[str]
) -> tuple[SideVocabulary, dict[str, str]]:
    """A vocabulary to which languages are added, and their tokens by code, which is the group of the pattern."""
    added = folder.added_tokens()
    languages = {name: index for name, index in added.items() if pattern.fullmatch(name)}
    others = {name: index for name, index in added.items() if name == "<mask>" and pattern is not M2M}
    ids = with_added(ids, [*languages.items(), *others.items()])
    tokens = codes(names_of(ids), pattern)
    if not tokens:
        raise ImporterError(
            f"`{folder.path}` does not list the languages of the model; download tokenizer_config.json and "
            "special_tokens_map.json."
        )
    side = sentencepiece_side(model, ids, rows, [BOS, PAD, EOS, UNK, *others, *tokens.values()], UNK)
    return side, tokens
