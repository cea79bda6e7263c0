"""Tokenizers over bytes: BART's byte-level BPE, and ByT5, whose tokens are bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes, read_json
from edgeformer.importers.hugging_face.entries import SideVocabulary, names_of, padded, read_ids
from edgeformer.importers.hugging_face.model_folder import JsonObject, ModelFolder
from edgeformer_runtime.limits import MAX_ADDED_TOKENS

MAX_MERGES = 32 << 20
"""Size of ``merges.txt``, in bytes."""
BYT5_SPECIAL = ("<pad>", "</s>", "<unk>")
"""First entries of ByT5's vocabulary; bytes follow."""


def byte_level_side(folder: ModelFolder, rows: int, special: Sequence[str]) -> SideVocabulary:
    """Convert a byte-level BPE, from ``vocab.json`` and ``merges.txt`` or from ``tokenizer.json``.

    ``rows`` is the number of entries of the embedding, and no text is encoded to ``special`` ones.
    """
    vocabulary, merges = folder.file("vocab.json"), folder.file("merges.txt")
    if vocabulary is not None and merges is not None:
        ids, pairs = read_ids(vocabulary), _read_merges(merges)
    else:
        file = folder.needed("tokenizer.json", why="and vocab.json with merges.txt as well")
        ids, pairs = _from_tokenizer(file)
    ids = {**ids, **{name: index for name, index in folder.added_tokens().items() if index is not None}}
    prefix_space = folder.tokenizer.get("add_prefix_space") is True
    return _byte_side(padded(ids, rows), pairs, special, regex=True, prefix_space=prefix_space)


def byt5_side(rows: int) -> SideVocabulary:
    """Make the tokenizer of ByT5, which has no files."""
    first = len(BYT5_SPECIAL)
    ids = {name: index for index, name in enumerate(BYT5_SPECIAL)}
    ids |= {character: first + byte for byte, character in enumerate(_byte_characters())}
    extra = range(len(ids), min(rows, len(ids) + 125))
    ids |= {f"<extra_id_{index - extra.start}>": index for index in extra}
    special = [name for name in ids if len(name) > 1]
    return _byte_side(padded(ids, rows), [], special, regex=False, prefix_space=False)


def _byte_side(
    ids: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special: Sequence[str],
    *,
    regex: bool,
    prefix_space: bool,
) -> SideVocabulary:
    if missing := [character for character in _byte_characters() if character not in ids]:
        raise ImporterError(f"The vocabulary lacks {len(missing)} of 256 bytes; it is not a byte-level one.")
    try:
        tokenizer = Tokenizer(models.BPE(vocab=dict(ids), merges=list(merges)))
    except Exception as error:  # the library raises plain Exception
        raise ImporterError(f"The merges do not fit the vocabulary: {error}.") from None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=regex)
    tokenizer.decoder = decoders.ByteLevel()
    names = [*special, *(name for name in ids if name.startswith("<unused "))]
    tokenizer.add_special_tokens([name for name in names if name in ids][:MAX_ADDED_TOKENS])
    return SideVocabulary(tokenizer.to_str(), names_of(ids))


def _read_merges(file: Path) -> list[tuple[str, str]]:
    try:
        lines = read_bytes(file, MAX_MERGES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ImporterError(f"`{file}` is damaged: {error}.") from None
    return [_pair(line.split(" "), file) for line in lines if line.strip() and not line.startswith("#version")]


def _pair(parts: Any, file: Path) -> tuple[str, str]:
    if isinstance(parts, str):
        parts = parts.split(" ")
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ImporterError(f"`{file}` is damaged: {str(parts)[:80]} is not a pair of entries.")
    return parts[0], parts[1].rstrip("\r")


def _from_tokenizer(file: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a ``tokenizer.json`` of this kind."""
    tree = read_json(file, JsonObject)
    model, splitter = tree.get("model"), tree.get("pre_tokenizer")
    is_byte_level = isinstance(splitter, dict) and splitter.get("type") == "ByteLevel"
    if not isinstance(model, dict) or model.get("type") != "BPE" or not is_byte_level or tree.get("normalizer"):
        raise ImporterError(f"`{file}` must have a byte-level BPE, without a normalizer.")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(name):
            raise ImporterError(f"`{name}` of `{file}` is {model[name]!r}, which is not supported.")
    ids, merges = model.get("vocab"), model.get("merges")
    if not isinstance(ids, dict) or not isinstance(merges, list):
        raise ImporterError(f"`{file}` is damaged: it has no vocabulary and merges.")
    if not all(type(index) is int and index >= 0 for index in ids.values()) or len(set(ids.values())) < len(ids):
        raise ImporterError(f"`{file}` must give an id of its own to each entry.")
    return ids, [_pair(parts, file) for parts in merges]


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (Radford et al. 2019)."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    others = iter(sorted(character for character in alphabet if ord(character) > 0xFF))  # of bytes without a glyph
    return [chr(byte) if chr(byte) in alphabet else next(others) for byte in range(256)]
