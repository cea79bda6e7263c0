"""The named corpora: their descriptions, origins and pinned files, as ``corpora.toml`` lists them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

import msgspec


@dataclass(frozen=True, kw_only=True)
class PinnedFile:
    """A file of a corpus, identified by its hash."""

    folder: str
    """Subfolder of the cache folder and, optionally, of the data folder."""
    name: str
    """File name without ``.gz``; a local file may have this suffix or not."""
    url: str
    """Address to download it from."""
    sha256: str
    """SHA-256 of the content after gzip decompression, or of the zip archive itself."""
    member: str = ""
    """Path of the text file inside a zip archive."""


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """One named corpus."""

    name: str
    """The value of ``data.corpus`` in a recipe."""
    description: str = ""
    """One line for humans."""
    source_language: str = ""
    """BCP 47 tag."""
    target_language: str = ""
    """BCP 47 tag."""
    license: str = ""
    """License as the corpus states it."""
    pairs: int = 0
    """Number of sentence pairs before filtering, over all parts."""
    origin: str = ""
    """Address for humans, or how the corpus is generated."""
    train: tuple[PinnedFile, ...] = ()
    """Two aligned files or one tab-separated file; empty for a generated corpus."""
    valid: tuple[PinnedFile, ...] = ()
    """The corpus's own validation files; split from ``train`` if empty."""
    test: tuple[PinnedFile, ...] = ()
    """The corpus's own test files; split from ``train`` if empty."""
    target_first: bool = False
    """The files have the target language first."""
    tokenized: bool = False
    """The text is already tokenized, so BLEU must not tokenize it again."""


def _corpora() -> dict[str, CorpusEntry]:
    tables = tomllib.loads((resources.files(__package__) / "corpora.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **table}, CorpusEntry) for name, table in tables.items()}


CORPORA = MappingProxyType(_corpora())
"""All named corpora, by name."""
