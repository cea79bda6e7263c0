"""Tokenizers over bytes: BART's byte-level BPE, and ByT5, whose tokens are bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_json, read_text
from edgeformer.importers.hugging_face.family import SideVocabulary
from edgeformer.importers.hugging_face.model_folder import JsonObject, ModelFolder
from edgeformer.importers.tokenizers import checked_ids, names_of, padded, read_ids, unused_names
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
    ids |= {name: index for name, index in folder.added_tokens().items() if index is not None}
    prefix_space = folder.tokenizer.get("add_prefix_space") is True
    return _byte_side(padded(ids, rows), pairs, special, regex=True, prefix_space=prefix_space)


def byt5_side(rows: int) -> SideVocabulary:
    """Make the tokenizer of ByT5, which has no files."""
    names = [*BYT5_SPECIAL, *_byte_characters(), *(f"<extra_id_{index}>" for index in range(125))]
    ids = {name: index for index, name in enumerate(names[:rows])}
    special = [name for name in ids if len(name) > 1]
    return _byte_side(padded(ids, rows), [], special, regex=False, prefix_space=False)


def _byte_side(
    ids: Mapping[str, int], merges: Sequence[Any], special: Sequence[str], *, regex: bool, prefix_space: bool
) -> SideVocabulary:
    if missing := [character for character in _byte_characters() if character not in ids]:
        raise ImporterError(f"The vocabulary lacks {len(missing)} of 256 bytes; it is not a byte-level one.")
    model = {"type": "BPE", "vocab": ids, "merges": merges}
    try:
        tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    except Exception as error:  # the library raises plain Exception
        raise ImporterError(f"The merges do not fit the vocabulary: {error}.") from None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=regex)
    tokenizer.decoder = decoders.ByteLevel()
    names = [name for name in special if name in ids]
    tokenizer.add_special_tokens([*names, *unused_names(ids)][:MAX_ADDED_TOKENS])
    return SideVocabulary(tokenizer.to_str(), names_of(ids))


def _read_merges(file: Path) -> list[str]:
    lines = read_text(file, MAX_MERGES).split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip() and not line.startswith("#version")]


def _from_tokenizer(file: Path) -> tuple[dict[str, int], list[Any]]:
    """Vocabulary and merges of a ``tokenizer.json`` of this kind."""
    tree = read_json(file, JsonObject)
    model, splitter = tree.get("model"), tree.get("pre_tokenizer")
    is_byte_level = isinstance(splitter, dict) and splitter.get("type") == "ByteLevel"
    if not isinstance(model, dict) or model.get("type") != "BPE" or not is_byte_level or tree.get("normalizer"):
        raise ImporterError(f"`{file}` must have a byte-level BPE, without a normalizer.")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(name):
            raise ImporterError(f"`{name}` of `{file}` is {model[name]!r}, which is not supported.")
    if not isinstance(model.get("merges"), list):
        raise ImporterError(f"`{file}` is damaged: it has no merges.")
    return checked_ids(model.get("vocab"), file), model["merges"]


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (Radford et al. 2019)."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    others = iter(sorted(character for character in alphabet if ord(character) > 0xFF))  # of bytes without a glyph
    return [chr(byte) if chr(byte) in alphabet else next(others) for byte in range(256)]
