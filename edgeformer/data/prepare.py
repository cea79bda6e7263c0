"""Writing of a corpus to plain text files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeformer.data.corpora import REPORT_FILE, CorpusReport, ParallelCorpus
from edgeformer.data.text import Pair, TextPairs, written_lines
from edgeformer.errors import DataError
from edgeformer.staged_folder import can_be_replaced, staged_folder
from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.files import write_atomically


def write_corpus(corpus: ParallelCorpus, folder: Path, *, overwrite: bool = False) -> None:
    """Write ``train``, ``valid`` and ``test``, with the languages as suffixes, and their report; atomic.

    The suffixes are ``source`` and ``target`` if the languages are unknown or the same.

    Raises:
        DataError: see :func:`ensure_writable`.
    """
    ensure_writable(folder, overwrite=overwrite)
    with staged_folder(folder, overwrite=overwrite) as staged:
        write_report(staged, write_parts(corpus, staged))


def write_parts(corpus: ParallelCorpus, folder: Path) -> CorpusReport:
    """Write the text of each part and return the report, which is to be written last."""
    languages = corpus.source_language, corpus.target_language
    if languages[0] == languages[1] or not all(re.fullmatch(r"[\w-]+", language) for language in languages):
        languages = "source", "target"
    parts: dict[str, Sequence[Pair] | TextPairs] = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    files = {}
    for part, pairs in parts.items():
        paths = [folder / f"{part}.{language}" for language in languages]
        with paths[0].open("wb") as source_file, paths[1].open("wb") as target_file:
            for source, target in pairs:
                source_file.write(written_lines([source]))
                target_file.write(written_lines([target]))
        files[part] = {path.name: file_sha256(path) for path in paths}
    return CorpusReport(
        provenance=corpus.provenance,
        source_language=corpus.source_language,
        target_language=corpus.target_language,
        pairs={part: len(pairs) for part, pairs in parts.items()},
        filter=corpus.report,
        files=files,
    )


def write_report(folder: Path, report: CorpusReport) -> None:
    """Write the report, which marks the corpus in a folder as complete."""
    write_atomically(folder / REPORT_FILE, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


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
