"""Writing of a corpus as plain text files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.data.corpora import ParallelCorpus
from edgeformer.data.text import Pair
from edgeformer.errors import DataError
from edgeformer.files import can_be_replaced, staged_folder

REPORT_FILE = "report.json"


def corpus_report(corpus: ParallelCorpus) -> dict[str, Any]:
    """Provenance, sizes and filter counts, ready for JSON."""
    return {
        "provenance": msgspec.to_builtins(corpus.provenance),
        "pairs": {part: len(pairs) for part, pairs in _parts(corpus)},
        "filter": msgspec.to_builtins(corpus.report),
    }


def write_corpus(corpus: ParallelCorpus, folder: Path, *, overwrite: bool = False) -> None:
    """Write ``train``, ``valid`` and ``test`` with the languages as suffixes, and ``report.json``, all or nothing.

    Raises:
        DataError: as for :func:`ensure_writable`.
    """
    languages = (corpus.source_language or "source", corpus.target_language or "target")
    ensure_writable(folder, overwrite=overwrite)
    with staged_folder(folder, overwrite=overwrite) as staged:
        for part, pairs in _parts(corpus):
            for language, sentences in zip(languages, _sides(pairs), strict=True):
                content = "".join(f"{sentence}\n" for sentence in sentences)
                (staged / f"{part}.{language}").write_bytes(content.encode("utf-8"))
        report = msgspec.json.format(msgspec.json.encode(corpus_report(corpus)), indent=2)
        (staged / REPORT_FILE).write_bytes(report + b"\n")


def ensure_writable(folder: Path, *, overwrite: bool) -> None:
    """Check that a corpus may be written to a folder.

    Raises:
        DataError: the folder exists and is not to be overwritten, holds something else than a prepared corpus, or is
            the current folder or a mount point.
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
        raise DataError(f"`{folder}` holds other files than a prepared corpus; give another folder with --out.")


def _parts(corpus: ParallelCorpus) -> tuple[tuple[str, list[Pair]], ...]:
    return ("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test)


def _sides(pairs: list[Pair]) -> tuple[Iterable[str], Iterable[str]]:
    return (source for source, _ in pairs), (target for _, target in pairs)
