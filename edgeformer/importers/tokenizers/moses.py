"""Tokenizers of models whose text is split as by Moses' scripts, and then by BPE codes of subword-nmt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer_runtime.tokenizer.moses_file import MosesFile

MAX_BYTES = 2**25
"""Maximum size of a file of codes; 50,000 merges, which is many, have less than a megabyte."""


def moses_tokenizer(
    path: str | Path,
    *,
    ids: Mapping[str, int],
    special_tokens: Iterable[str],
    unk_token: str,
    language: str,
    rules: Literal["sacremoses", "perl"] = "sacremoses",
) -> str:
    """Return the content of a ``tokenizer.json`` that segments text as sacremoses and subword-nmt do.

    Args:
        path: the codes, as ``subword-nmt learn-bpe`` writes them.
        ids: the translation model's vocabulary, without gaps.
        special_tokens: entries that no text is encoded to, and that are dropped when decoding.
        unk_token: the unknown token.
        language: code of the language of the text.
        rules: those of sacremoses, or those of Moses' scripts as OPUS-MT calls them.
    """
    path = Path(path)
    try:
        version, merges = _codes(read_bytes(path, MAX_BYTES).decode("utf-8"))
        file = MosesFile(
            language=language,
            rules=rules,
            vocabulary=sorted(ids, key=ids.__getitem__),
            unk_token=unk_token,
            special_tokens=list(dict.fromkeys(special_tokens)),
            codes_version=version,  # type: ignore[arg-type] # checked below
            merges=merges,
        )
        content = msgspec.json.encode(file)
        msgspec.json.decode(content, type=MosesFile)
    except (ValueError, msgspec.DecodeError) as error:
        raise ImporterError(f"BPE codes `{path}` are damaged or not supported: {error}.") from None
    return content.decode("utf-8")


def _codes(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the version of codes, and the pairs to merge.

    Raises:
        ValueError: a line is not a pair.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    version, first = "0.1", 1
    if lines[0].startswith("#version:"):
        version, first = re.sub(r"(\.0+)*$", "", lines.pop(0).split()[-1]), 2
    merges = []
    for number, line in enumerate(lines, first):
        pair = line.strip(" ").split(" ")
        if len(pair) != 2:
            raise ValueError(f"line {number} is not two symbols with a space between them")
        merges.append((pair[0], pair[1]))
    return version, merges
