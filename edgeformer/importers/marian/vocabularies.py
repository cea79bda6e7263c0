"""Vocabularies of Marian models."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer.importers.marian.files import Files
from edgeformer.importers.tokenizers import sentencepiece_tokenizer, word_tokenizer
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE, TextFormat
from edgeformer_runtime.tokenizer import Tokenizer

MAX_VOCABULARY = 64 << 20
"""Size of a vocabulary file, in bytes."""
START_TOKEN = "<s>"
"""Marian has no start token; the decoder's first input is a zero vector. Here, it is the last entry of a table."""
EOS_TOKEN, UNK_TOKEN = "</s>", "<unk>"
TEXT = TextFormat(pad=EOS_TOKEN, bos=START_TOKEN, suppress=(START_TOKEN,), forbid=(UNK_TOKEN,))
LANGUAGE_TOKEN = re.compile(r">>[^<>\s]+<<")
"""Target language of a model with several, as the first token of a source."""
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "_": "\xa0",
}


@dataclass(frozen=True)
class Vocabularies:
    """Both tokenizers, each with the start token as its last entry."""

    source: str
    """Content of its ``tokenizer.json``."""
    target: str
    """Equal to the source's if both sides share one."""
    sizes: tuple[int, int]
    """Number of entries, the start token included."""
    text: TextFormat


def read_vocabularies(files: Files) -> Vocabularies:
    """Convert the vocabularies, and append the start token to each.

    Raises:
        ImporterError: a vocabulary is missing, damaged, or lacks the end or the unknown token.
    """
    converted: dict[tuple[Path, Path | None], tuple[str, int]] = {}
    for key in _sides(files):
        if key not in converted:
            converted[key] = _vocabulary(*key)
    (source, source_size), (target, target_size) = (converted[key] for key in _sides(files))
    languages = {}
    if files.pieces is not None:
        names = [name for name in read_vocabulary(files.vocabularies[0]) if LANGUAGE_TOKEN.fullmatch(name)]
        languages = {name[2:-2]: name for name in names}
    text = replace(TEXT, source_prefix=(TARGET_LANGUAGE,), languages=languages) if languages else TEXT
    return Vocabularies(source, target, (source_size, target_size), text)


def _sides(files: Files) -> tuple[tuple[Path, Path | None], tuple[Path, Path | None]]:
    """Vocabulary and SentencePiece model of each side."""
    (source, target), pieces = files.vocabularies, files.pieces or (None, None)
    return (source, pieces[0]), (target, pieces[1])


def _vocabulary(file: Path, pieces: Path | None) -> tuple[str, int]:
    """Return a tokenizer's content and the number of its entries, the start token included."""
    if file.suffix == ".spm":
        content = sentencepiece_tokenizer(file, special_tokens=(START_TOKEN,))
        return content, Tokenizer.from_json(content, file, TEXT).vocab_size
    ids = read_vocabulary(file)
    for token in (EOS_TOKEN, UNK_TOKEN):
        if token not in ids:
            raise ImporterError(f"Vocabulary `{file}` lacks `{token}`.")
    if START_TOKEN in ids:
        raise ImporterError(f"Vocabulary `{file}` has an entry `{START_TOKEN}`, which Marian does not use.")
    ids[START_TOKEN] = max(ids.values()) + 1
    if pieces is not None:
        special = [START_TOKEN, EOS_TOKEN, *(name for name in ids if LANGUAGE_TOKEN.fullmatch(name))]
        return sentencepiece_tokenizer(pieces, ids=ids, special_tokens=special, unk_token=UNK_TOKEN), len(ids)
    words = word_tokenizer(ids, special_tokens=(START_TOKEN, EOS_TOKEN), unk_token=UNK_TOKEN)
    return words, len(ids)


def read_vocabulary(file: Path) -> dict[str, int]:
    """Read a vocabulary in one of Marian's text formats: YAML, JSON, or one entry per line.

    Marian's YAML has one entry per line, whose control characters may be unescaped, which YAML does not allow.

    Raises:
        ImporterError: the file cannot be read, or is damaged.
    """
    try:
        text = read_bytes(file, MAX_VOCABULARY).decode("utf-8")
        if file.suffix == ".json":
            ids = json.loads(text)
        elif file.suffix == ".txt":
            ids = {line: index for index, line in enumerate(text.removesuffix("\n").split("\n"))}
        else:
            ids = dict(_yaml_entry(line) for line in text.split("\n") if line.strip())
    except (ValueError, RecursionError) as error:
        raise ImporterError(f"Vocabulary `{file}` is damaged: {error}.") from None
    if not isinstance(ids, dict) or not all(isinstance(index, int) and index >= 0 for index in ids.values()):
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
        return _ESCAPES.get(match[4], match[4])
    code = int(match[1] or match[2] or match[3], 16)
    if code > sys.maxunicode:
        raise ValueError(f"`{match[0]}` is not a character")
    return chr(code)
