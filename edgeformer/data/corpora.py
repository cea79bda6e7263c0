"""Corpora to train on: named, from files, or from a folder that an earlier command has written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from edgeformer.config import DataConfig
from edgeformer.data.catalog import CORPORA, CorpusEntry, PinnedFile
from edgeformer.data.download import obtain
from edgeformer.data.filters import FilterReport, filter_pairs, split_by_source, sum_of
from edgeformer.data.text import Pair, TextPairs, content_sha256, iterate_pairs, written_lines
from edgeformer.errors import ConfigError, DataError
from edgeformer.staged_folder import can_be_replaced, staged_folder
from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.bundle.provenance import Origin
from edgeformer_runtime.files import write_atomically

OWN_FILES = CorpusEntry(name="files")
"""The user's own files, about which nothing is known."""
REPORT_FILE = "report.json"
"""Written last into the folder of a prepared corpus, so that a folder without it is incomplete."""


class TextOrigin(Origin, kw_only=True, frozen=True, omit_defaults=True):
    """The text that a model was trained on, or the model that was imported; records are equal if their text is."""

    initial: TextOrigin | None = None
    """The same of the model that training started from; ``None`` if it started from random weights."""

    @property
    def tokenize(self) -> str:
        """sacreBLEU's tokenizer for the text: ``none`` if the corpus is already tokenized."""
        corpus = CORPORA.get(self.name)
        return "none" if corpus is not None and corpus.tokenized else "13a"


class CorpusReport(msgspec.Struct, kw_only=True, frozen=True):
    """Content of :data:`REPORT_FILE`."""

    provenance: TextOrigin
    """Where the text comes from."""
    source_language: str
    """BCP 47 tag; empty for a user's own files."""
    target_language: str
    """BCP 47 tag; empty for a user's own files."""
    pairs: dict[str, int]
    """Number of sentence pairs in ``train``, ``valid`` and ``test``."""
    filter: FilterReport
    """How many pairs the filters dropped."""
    files: dict[str, dict[str, str]]
    """Name and SHA-256 of the source file and then of the target file of each part."""


@dataclass(frozen=True, kw_only=True)
class ParallelCorpus:
    """Sentence pairs in three parts; a corpus's own validation and test parts are never filtered."""

    train: TextPairs
    """Pairs to train on."""
    valid: list[Pair]
    """Pairs to choose a checkpoint with."""
    test: list[Pair]
    """Pairs to report scores on; a source sentence occurs several times if the corpus has several targets for it."""
    report: FilterReport
    """How many pairs the filters dropped."""
    provenance: TextOrigin
    """Where the text comes from."""
    source_language: str = ""
    """BCP 47 tag; empty for a user's own files."""
    target_language: str = ""
    """BCP 47 tag; empty for a user's own files."""


def load_corpus(config: DataConfig, data_dir: Path | None = None) -> ParallelCorpus:
    """Read, filter and split the text that a recipe names.

    Files of a named corpus are searched for in ``data_dir`` and its subfolders such as ``multi30k`` and ``tatoeba``,
    then in the cache folder, and finally downloaded. The user's own files and folders are relative to ``data_dir`` if
    it is given, else to the current folder.

    Args:
        config: section ``[data]`` of a recipe.
        data_dir: folder with corpora.

    Raises:
        ConfigError: neither or both of a corpus and files are given, or the corpus is unknown.
        DataError: a file is missing, empty, damaged or does not match its pinned hash, or too few sentences are left.
    """
    is_folder = isinstance(config.corpus, str) and config.corpus not in CORPORA
    if not (config.corpus or config.train) or (config.corpus and config.train and not is_folder):
        raise ConfigError(
            "The recipe must have either `data.corpus` or `data.train`; only a folder that `edgeformer data prepare` "
            "has written can be given with `data.train`, which then replaces its training text."
        )
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"The data folder `{data_dir}` does not exist; check --data.")
    names = config.corpus or None
    if names is None or isinstance(names, str):
        return _load(config, names, data_dir)
    return join_corpora([_load(config, name, data_dir) for name in names])


def _load(config: DataConfig, name: str | None, data_dir: Path | None) -> ParallelCorpus:
    """Load one corpus, or the user's own files if it has no name."""
    if name and name not in CORPORA:
        return _load_folder(config, name, data_dir)
    corpus = CORPORA[name] if name else OWN_FILES
    hashes: dict[str, str] = {}

    def part(own: Sequence[str], pinned: Sequence[PinnedFile]) -> Callable[[], Iterable[Pair]] | None:
        """Return a function that reads a part, and note the hashes of its files."""
        paths = [str((data_dir or Path()) / file) for file in own]
        if own and next(iterate_pairs(paths), None) is None:
            raise DataError(f"`{'` and `'.join(paths)}` must hold sentence pairs, but is empty; give other files.")
        hashes.update({file: content_sha256(path) for file, path in zip(own, paths, strict=True)})
        for file in () if own else pinned:
            path = obtain(file, data_dir)
            paths.append(f"{path}:{file.member}" if file.member else str(path))
            hashes[file.name] = file.sha256
        if not paths:
            return None
        if corpus.target_first:
            return lambda: ((second, first) for first, second in iterate_pairs(paths))
        return lambda: iterate_pairs(paths)

    read = part(config.train, corpus.train) or _generated(config, hashes)
    valid, test = (
        list(own()) if (own := part(getattr(config, name), getattr(corpus, name))) else None
        for name in ("valid", "test")
    )
    train, report = filter_pairs(
        read, max_words=config.max_words, max_ratio=config.max_ratio, keep_repeated=config.keep_repeated
    )
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
        provenance=TextOrigin(name=corpus.name, licence=corpus.license, origin=corpus.origin, sha256=hashes),
        source_language=corpus.source_language,
        target_language=corpus.target_language,
    )


def join_corpora(corpora: Sequence[ParallelCorpus]) -> ParallelCorpus:
    """Join several corpora; what one of them holds out is not trained on, whatever its case and punctuation."""
    if len({(corpus.source_language, corpus.target_language) for corpus in corpora}) > 1:
        pairs = ", ".join(f"{corpus.source_language} → {corpus.target_language}" for corpus in corpora)
        raise ConfigError(f"The corpora of `data.corpus` must have the same languages, but have {pairs}.")
    for origin in (corpus.provenance for corpus in corpora):
        if origin.tokenize == "none":
            raise ConfigError(f"`{origin.name}` has tokenized text and cannot be combined with others; give it alone.")
    valid, test = ([pair for corpus in corpora for pair in getattr(corpus, part)] for part in ("valid", "test"))
    held_out = {_key(source) for source, _ in (*valid, *test)}
    origins = list({corpus.provenance.name: corpus.provenance for corpus in corpora}.values())
    return ParallelCorpus(
        train=TextPairs.of(*(corpus.train for corpus in corpora)).keep(lambda pair: _key(pair[0]) not in held_out),
        valid=valid,
        test=test,
        report=sum_of([corpus.report for corpus in corpora]),
        provenance=TextOrigin(
            name=" + ".join(origin.name for origin in origins),
            licence="; ".join(f"{origin.name}: {origin.licence or 'unknown'}" for origin in origins),
            origin="; ".join(dict.fromkeys(origin.origin for origin in origins if origin.origin)),
            sha256={f"{origin.name}/{file}": sha256 for origin in origins for file, sha256 in origin.sha256.items()},
        ),
        source_language=corpora[0].source_language,
        target_language=corpora[0].target_language,
    )


def _key(source: str) -> str:
    """A sentence without case, white space and punctuation."""
    return "".join(filter(str.isalnum, source.casefold())) or source


def _load_folder(config: DataConfig, name: str, data_dir: Path | None) -> ParallelCorpus:
    """Read a folder written by ``edgeformer data prepare``."""
    folder = ((data_dir or Path()) / name).resolve()
    if not folder.is_dir():
        raise ConfigError(
            f"`data.corpus` must be one of {', '.join(CORPORA)}, or a folder written by `edgeformer data prepare`, but "
            f"is `{name}`, and there is no folder `{folder.absolute()}`."
        )
    try:
        report = msgspec.json.decode((folder / REPORT_FILE).read_bytes(), type=CorpusReport)
    except FileNotFoundError:
        raise DataError(
            f"`{folder}` does not hold a complete corpus, since it has no {REPORT_FILE}; write one with "
            "`edgeformer data prepare`."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"`{folder / REPORT_FILE}` is damaged: {error}. Write the corpus into another folder."
        ) from None
    expected = {str(folder / name): sha256 for files in report.files.values() for name, sha256 in files.items()}
    parts = {
        part: getattr(config, part) or tuple(str(folder / name) for name in files)
        for part, files in report.files.items()
    }
    corpus = load_corpus(msgspec.structs.replace(config, corpus=None, **parts), data_dir)
    hashes = corpus.provenance.sha256
    if changed := [file for file, sha256 in hashes.items() if expected.get(file, sha256) != sha256]:
        raise DataError(
            f"`{'` and `'.join(changed)}` changed after the corpus was written; write it again, or pass the files as "
            "your own with `data.train`, `data.valid` and `data.test`."
        )
    names = {Path(file).name if file in expected else file: sha256 for file, sha256 in hashes.items()}
    return replace(
        corpus,
        provenance=msgspec.structs.replace(report.provenance, sha256=names),
        source_language=report.source_language,
        target_language=report.target_language,
    )


def _generated(config: DataConfig, hashes: dict[str, str]) -> Callable[[], Iterable[Pair]]:
    from edgeformer.data.dates import generate_dates  # needs Babel

    pairs = generate_dates(seed=config.seed)
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    hashes["generated"] = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return lambda: pairs


def folder_of_files(config: DataConfig, recipe: Path) -> Path | None:
    """Return the folder of a recipe if the files that its data name lie there and not in the current folder."""
    own = [Path(re.sub(r"(?<=\.zip):.*", "", file)) for file in (*config.train, *config.valid, *config.test)]
    if not own or any(file.exists() for file in own) or not all((recipe.parent / file).exists() for file in own):
        return None
    return recipe.parent


def write_corpus(corpus: ParallelCorpus, folder: Path, *, overwrite: bool = False) -> None:
    """Write ``train``, ``valid`` and ``test``, with the languages as suffixes, and their report; atomic.

    The suffixes are ``source`` and ``target`` if the languages are unknown or the same.

    Raises:
        DataError: see :func:`ensure_writable`.
    """
    ensure_writable(folder, overwrite=overwrite)
    languages = corpus.source_language, corpus.target_language
    if languages[0] == languages[1] or not all(re.fullmatch(r"[\w-]+", language) for language in languages):
        languages = "source", "target"
    parts: dict[str, Sequence[Pair] | TextPairs] = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    with staged_folder(folder, overwrite=overwrite) as staged:
        files = {}
        for part, pairs in parts.items():
            paths = [staged / f"{part}.{language}" for language in languages]
            with paths[0].open("wb") as source_file, paths[1].open("wb") as target_file:
                for source, target in pairs:
                    source_file.write(written_lines([source]))
                    target_file.write(written_lines([target]))
            files[part] = {path.name: file_sha256(path) for path in paths}
        report = CorpusReport(
            provenance=corpus.provenance,
            source_language=corpus.source_language,
            target_language=corpus.target_language,
            pairs={part: len(pairs) for part, pairs in parts.items()},
            filter=corpus.report,
            files=files,
        )
        content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
        write_atomically(staged / REPORT_FILE, content)


def ensure_writable(folder: Path, *, overwrite: bool) -> None:
    """Check that a corpus may be written to a folder.

    Raises:
        DataError: the folder exists and may not be overwritten, holds anything but a prepared corpus, or is the
            current folder or a mount point.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"`{folder}` is a file; give another folder with --out.")
    if not can_be_replaced(folder):
        raise DataError(f"`{folder}` is the current folder or a mount point; give a folder inside it with --out.")
    entries = [entry.name for entry in folder.iterdir()]
    if not entries:
        return
    if not overwrite:
        raise DataError(f"`{folder}` is not empty; give --overwrite to replace it, or another folder with --out.")
    parts = ("train", "valid", "test")
    foreign = [name for name in entries if name != REPORT_FILE and name.partition(".")[0] not in parts]
    if REPORT_FILE not in entries or foreign:
        raise DataError(
            f"`{folder}` holds files that are not part of a prepared corpus; give another folder with --out."
        )
