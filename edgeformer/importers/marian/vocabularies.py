"""Vocabularies of Marian models."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

from yaml.scanner import Scanner

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_text
from edgeformer.importers.languages import MARIAN, codes, with_tags
from edgeformer.importers.tokenizers import (
    TextFiles,
    TokenizerPair,
    checked_ids,
    read_ids,
    start_token,
    text_format,
    tokenizer_pair,
)
from edgeformer.importers.tokenizers.sentencepiece_model import read_model
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE

EOS_TOKEN, UNK_TOKEN = "</s>", "<unk>"
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)


def read_vocabularies(files: TextFiles) -> TokenizerPair:
    """Convert the vocabularies, and append the start token to each: Marian's decoder starts from a zero vector."""
    entries = [read_vocabulary(file) for file in files.vocabularies]
    start = start_token({name for ids in entries for name in ids})
    for file, ids in zip(files.vocabularies, entries, strict=True):
        for token in (EOS_TOKEN, UNK_TOKEN):
            if token not in ids:
                raise ImporterError(f"Vocabulary `{file}` lacks `{token}`.")
        ids[start] = max(ids.values()) + 1
    is_divided = files.pieces[0] not in (None, files.vocabularies[0])  # into pieces that are not all entries
    tokens = codes(chain(*entries), MARIAN) if is_divided else {}
    languages = with_tags(codes(entries[0], MARIAN)) if is_divided else {}
    text = text_format(
        pad=EOS_TOKEN,
        bos=start,
        suppress=(start,),
        forbid=(UNK_TOKEN,),
        source_prefix=(TARGET_LANGUAGE,) if languages else (),
        languages=languages,
    )
    return tokenizer_pair(files, entries, (start, EOS_TOKEN, *tokens.values()), text)


def read_vocabulary(file: Path) -> dict[str, int]:
    """Read a vocabulary in one of Marian's formats: YAML, JSON, one entry per line, or a SentencePiece model.

    Marian's YAML has one entry per line, whose control characters may be unescaped, which YAML does not allow.
    """
    if file.suffix == ".spm":
        return {name: index for index, name in enumerate(read_model(file).pieces)}
    if file.suffix == ".json":
        return read_ids(file)
    lines = read_text(file).removesuffix("\n").split("\n")
    if file.suffix == ".txt":
        return {line: index for index, line in enumerate(lines)}
    try:
        ids = dict(_yaml_entry(line) for line in lines if line.strip())
    except ValueError as error:
        raise ImporterError(f"Vocabulary `{file}` is damaged: {error}.") from None
    return checked_ids(ids, file)


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
