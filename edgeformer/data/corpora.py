"""Loading of a corpus, named or from files, ready to train on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeformer.config import DataConfig
from edgeformer.data.catalogue import CORPORA, Corpus, PinnedFile
from edgeformer.data.download import Progress, cache_folder, download
from edgeformer.data.filters import FilterReport, filter_pairs
from edgeformer.data.split import split_by_source
from edgeformer.data.text import Pair, decompress, read_content, read_pairs
from edgeformer.errors import ConfigError, DataError
from edgeformer.files import write_atomically


class Provenance(msgspec.Struct, kw_only=True, frozen=True):
    """Where the text comes from; goes into checkpoints and bundles."""

    name: str
    """Name of the corpus, or ``files``."""
    licence: str
    """Licence as the corpus states it; empty for a user's own files."""
    origin: str
    """Address for people; empty for a user's own files."""
    sha256: dict[str, str]
    """Hash of each file's content, decompressed, by file name; of the archive for a named zip."""


@dataclass(frozen=True, kw_only=True)
class ParallelCorpus:
    """Sentence pairs in three parts; a corpus's own validation and test are never filtered."""

    train: list[Pair]
    """To learn from."""
    valid: list[Pair]
    """To choose a checkpoint by."""
    test: list[Pair]
    """To score once; a source sentence can occur with several targets where the corpus has them."""
    report: FilterReport
    """What the filters dropped."""
    provenance: Provenance
    """Where the text comes from."""
    source_language: str = ""
    """BCP 47 tag; empty for a user's own files."""
    target_language: str = ""
    """BCP 47 tag; empty for a user's own files."""


def load_corpus(config: DataConfig, data_dir: Path | None = None, progress: Progress | None = None) -> ParallelCorpus:
    """Read, filter and split the text that a recipe names.

    Files of a named corpus are looked for in ``data_dir`` and its subfolders ``multi30k`` and ``tatoeba``, then in the
    cache folder, then downloaded. Own files are relative to ``data_dir`` if given, else to the current folder.

    Args:
        config: section ``[data]`` of a recipe.
        data_dir: a folder with corpora.
        progress: told about downloads; left out, a bar is drawn if standard error is a terminal.

    Raises:
        ConfigError: neither or both of a corpus and files are given, or the corpus is unknown.
        DataError: a file is missing, empty, damaged or not the pinned one, or too few sentences are left.
    """
    if bool(config.corpus) == bool(config.train):
        raise ConfigError("Give either `data.corpus` or `data.train`.")
    if config.corpus and config.corpus not in CORPORA:
        raise ConfigError(f"`data.corpus` must be one of {', '.join(CORPORA)}, but is `{config.corpus}`.")
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"The data folder `{data_dir}` does not exist; check --data.")
    corpus = CORPORA[config.corpus] if config.corpus else None
    hashes: dict[str, str] = {}

    def part(own: Sequence[str], pinned: Sequence[PinnedFile]) -> list[Pair] | None:
        if own:
            return _read_own(own, data_dir, hashes)
        return _read_pinned(pinned, data_dir, progress, hashes) if pinned else None

    train = part(config.train, corpus.train if corpus else ())
    if train is None:
        train = _generate(config, hashes)
    valid = part(config.valid, corpus.valid if corpus else ())
    test = part(config.test, corpus.test if corpus else ())

    train, report = filter_pairs(train, max_words=config.max_words, max_ratio=config.max_ratio)
    split = split_by_source(
        train,
        valid_size=config.valid_size if valid is None else 0,
        test_size=config.test_size if test is None else 0,
        seed=config.seed,
    )
    return ParallelCorpus(
        train=split.train,
        valid=split.valid if valid is None else valid,
        test=split.test if test is None else test,
        report=report,
        provenance=_provenance(corpus, hashes),
        source_language=corpus.source_language if corpus else "",
        target_language=corpus.target_language if corpus else "",
    )


def _provenance(corpus: Corpus | None, hashes: dict[str, str]) -> Provenance:
    if corpus is None:
        return Provenance(name="files", licence="", origin="", sha256=hashes)
    return Provenance(name=corpus.name, licence=corpus.licence, origin=corpus.origin, sha256=hashes)


def _generate(config: DataConfig, hashes: dict[str, str]) -> list[Pair]:
    from edgeformer.data.dates import generate_dates  # Babel is needed for this corpus alone

    pairs = generate_dates(seed=config.seed)
    hashes["generated"] = _sha256("".join(f"{source}\t{target}\n" for source, target in pairs).encode("utf-8"))
    return pairs


def _read_own(files: Sequence[str], data_dir: Path | None, hashes: dict[str, str]) -> list[Pair]:
    paths = [str((data_dir or Path()) / file) for file in files]
    pairs = read_pairs(paths)
    if not pairs:
        raise DataError(f"`{'` and `'.join(paths)}` must hold sentence pairs, but there is none; give other files.")
    hashes.update({file: _sha256(read_content(path)) for file, path in zip(files, paths, strict=True)})
    return pairs


def _read_pinned(
    files: Sequence[PinnedFile], data_dir: Path | None, progress: Progress | None, hashes: dict[str, str]
) -> list[Pair]:
    paths = []
    for file in files:
        path = _obtain(file, data_dir, progress)
        paths.append(f"{path}:{file.member}" if file.member else str(path))
        hashes[file.name] = file.sha256
    return read_pairs(paths)


def _obtain(file: PinnedFile, data_dir: Path | None, progress: Progress | None) -> Path:
    """Path of a file whose content has the pinned hash."""
    cache = cache_folder() / file.folder
    folders = [cache] if data_dir is None else [data_dir, data_dir / file.folder, cache]
    for path in (folder / f"{file.name}{suffix}" for folder in folders for suffix in ("", ".gz")):
        if path.is_file():
            _verify(file, path.read_bytes(), path, "Remove the file to have it downloaded again")
            return path
    content = download(file.url, progress=progress)
    path = cache / file.url.rpartition("/")[2]
    _verify(
        file,
        content,
        file.url,
        "The site has changed the file: put the pinned version into a folder and give that with --data",
    )
    write_atomically(path, content)
    return path


def _verify(file: PinnedFile, content: bytes, place: str | Path, advice: str) -> None:
    found = _sha256(decompress(content, place))
    if found != file.sha256:
        own = f'data.train = ["{file.name}:{file.member}"]' if file.member else "data.train"
        raise DataError(
            f"`{place}` has SHA-256 {found}, but the corpus is pinned to {file.sha256}. "
            f"{advice}, or train on this version as your own file with {own}."
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
