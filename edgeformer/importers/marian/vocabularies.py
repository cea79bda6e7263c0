"""Vocabularies of Marian models."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from yaml.scanner import Scanner

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_TEXT, read_bytes, read_json
from edgeformer.importers.languages import MARIAN, codes, with_tags
from edgeformer.importers.tokenizers import (
    TextFiles,
    TokenizerPair,
    sentencepiece_tokenizer,
    start_token,
    text_format,
    text_tokenizer,
)
from edgeformer.importers.tokenizers.sentencepiece_model import read_model
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE

EOS_TOKEN, UNK_TOKEN = "</s>", "<unk>"
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)


def read_vocabularies(files: TextFiles) -> TokenizerPair:
    """Convert the vocabularies, and append the start token to each: Marian's decoder starts from a zero vector."""
    entries = [read_vocabulary(file) for file in files.vocabularies]
    start = start_token({name for ids in entries for name in ids})
    languages = with_tags(codes(entries[0], MARIAN)) if files.pieces is not None else {}
    contents = [
        _tokenizer(file, ids, start, pieces) for ids, (file, pieces) in zip(entries, files.sides(), strict=True)
    ]
    text = text_format(
        pad=EOS_TOKEN,
        bos=start,
        suppress=(start,),
        forbid=(UNK_TOKEN,),
        source_prefix=(TARGET_LANGUAGE,) if languages else (),
        languages=languages,
    )
    return TokenizerPair(contents[0], contents[1], (len(entries[0]) + 1, len(entries[1]) + 1), text)


def _tokenizer(file: Path, ids: Mapping[str, int], start: str, pieces: Path | None) -> str:
    """Return a tokenizer's content, with the start token as its last entry."""
    if file.suffix == ".spm":
        return sentencepiece_tokenizer(file, special_tokens=(start,))
    for token in (EOS_TOKEN, UNK_TOKEN):
        if token not in ids:
            raise ImporterError(f"Vocabulary `{file}` lacks `{token}`.")
    ids = {**ids, start: max(ids.values()) + 1}
    special = (start, EOS_TOKEN, *codes(ids, MARIAN).values())
    return text_tokenizer(ids, special, UNK_TOKEN, pieces)


def read_vocabulary(file: Path) -> dict[str, int]:
    """Read a vocabulary in one of Marian's formats: YAML, JSON, one entry per line, or a SentencePiece model.

    Marian's YAML has one entry per line, whose control characters may be unescaped, which YAML does not allow.
    """
    if file.suffix == ".spm":
        return {name: index for index, name in enumerate(read_model(file).pieces)}
    if file.suffix == ".json":
        ids = read_json(file, dict[str, int])
    else:
        try:
            lines = read_bytes(file, MAX_TEXT).decode("utf-8").removesuffix("\n").split("\n")
            if file.suffix == ".txt":
                return {line: index for index, line in enumerate(lines)}
            ids = dict(_yaml_entry(line) for line in lines if line.strip())
        except ValueError as error:
            raise ImporterError(f"Vocabulary `{file}` is damaged: {error}.") from None
    if min(ids.values(), default=0) < 0:
        raise ImporterError(f"Vocabulary `{file}` must give an id to each entry.")
    return ids


def _yaml_entry(line: str) -> tuple[str, int]:
    """Parse ``token: id``, whose token may be quoted.

    Raises:
        ValueError: the line has another form.
    """
    token, separator, index = line.rpartition(":")
    if not separator:
        raise ValueError(f"the line `{line[:80]}` has no colon")
    if len(token) > 1 and token[0] == token[-1] == '"':
        token = _ESCAPE.sub(_unescaped, token[1:-1])
    elif len(token) > 1 and token[0] == token[-1] == "'":
        token = token[1:-1].replace("''", "'")
    return token, int(index)


def _unescaped(match: re.Match[str]) -> str:
    if match[4] is not None:
        return Scanner.ESCAPE_REPLACEMENTS.get(match[4], match[4])
    code = int(match[1] or match[2] or match[3], 16)
    if code > sys.maxunicode:
        raise ValueError(f"`{match[0]}` is not a character")
    return chr(code)
