"""The folder of a distillation while it goes on: what was asked for, and how far it is.

The text is written in chunks; after each, a small file says how many bytes of the text count. So the work can be
stopped at any point: what a stop left behind the last chunk is dropped, and the end is the same, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import DataConfig, Recipe
from edgeformer.data.corpora import REPORT_FILE, CorpusReport
from edgeformer.errors import ConfigError, DataError
from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.files import write_atomically

PROGRESS_FILE = "progress.json"
ORIGINAL = "original"
"""Name of the training pairs as they were, which are there while the work is not complete."""


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """What is to be done; work that has begun can go on only as it began."""

    teacher: str
    """Name of the teacher's folder."""
    teacher_sha256: str
    """SHA-256 of its manifest, which holds those of all its files."""
    beam_size: int
    """Hypotheses kept in search."""
    length_penalty: float
    """Exponent of the length that divides a score."""
    n_best: int = 1
    """Translations kept of each source, the best first."""
    closest: str = ""
    """If set, keep the one translation of the beam that is closest to the original target, by sentence BLEU with this
    tokenizer of sacreBLEU (sequence-level interpolation)."""


class Counts(msgspec.Struct, kw_only=True, frozen=True):
    """How far the work is."""

    sentences: int = 0
    """Pairs read."""
    pairs: int = 0
    """Pairs written; more with several translations of each."""
    too_long: int = 0
    """Pairs that keep their original target, since the source has more tokens than the teacher takes."""
    unfinished: int = 0
    """Pairs that keep their original target, since every translation is empty or was cut off at the length limit."""


class Progress(msgspec.Struct, kw_only=True, frozen=True):
    """Content of :data:`PROGRESS_FILE`; offsets are bytes in the source and in the target file."""

    job: Job
    data: DataConfig
    """Section ``[data]`` of the recipe."""
    report: CorpusReport
    """Of the corpus as it was."""
    counts: Counts = Counts()
    read: tuple[int, int] = (0, 0)
    written: tuple[int, int] = (0, 0)


def resumed(out: Path, recipe: Recipe | None, settings: dict[str, Any]) -> Progress:
    """Read what was done before, and make sure that it is to go on as it began.

    Args:
        out: the folder.
        recipe: the recipe that names the corpus, if it is to be compared.
        settings: fields of :class:`Job` to compare.

    Raises:
        ConfigError: there is nothing to resume, or it was begun in another way.
        DataError: what was kept is damaged.
    """
    try:
        progress = msgspec.json.decode((out / PROGRESS_FILE).read_bytes(), type=Progress)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"`{out}` holds nothing to resume; begin without --resume.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"`{out / PROGRESS_FILE}` is damaged: {error}. Begin again in another folder.") from None
    refuse_other(out, msgspec.to_builtins(progress.job), settings)
    if recipe is not None and recipe.data != progress.data:
        now, before = msgspec.to_builtins(recipe.data), msgspec.to_builtins(progress.data)
        keys = ", ".join(f"`data.{key}`" for key in now if now[key] != before[key])
        raise ConfigError(f"`{out}` was begun with another recipe, in which {keys} differ; leave RECIPE out.")
    for language, sha256, offset in zip(
        suffixes(progress.report), progress.report.files["train"].values(), progress.written, strict=True
    ):
        original, written = out / f"{ORIGINAL}.{language}", out / f"train.{language}"
        if not original.is_file() or file_sha256(original) != sha256:
            raise DataError(f"`{original}` is missing or has changed; begin again in another folder.")
        if not written.is_file() or written.stat().st_size < offset:
            raise DataError(f"`{written}` lacks text that was written before; begin again in another folder.")
    return progress


def refuse_other(out: Path, before: dict[str, Any], settings: dict[str, Any]) -> None:
    """Compare some fields of a :class:`Job` with what they were.

    Raises:
        ConfigError: one differs.
    """
    differing = [key for key in settings if settings[key] != before.get(key)]
    if "teacher_sha256" in differing:
        raise ConfigError(
            f"`{out}` was begun with another teacher, `{before.get('teacher')}`, whose manifest has SHA-256 "
            f"{before.get('teacher_sha256')}; give that one, or another --out."
        )
    if differing:
        listed = "; ".join(f"`{key}` was {before.get(key)!r}, and now is {settings[key]!r}" for key in differing)
        raise ConfigError(f"`{out}` was begun with other settings: {listed}. Leave them out, or give another --out.")


def tidy(out: Path, report: CorpusReport) -> None:
    """Remove what only served to resume, and files that a stop left half written."""
    kept = [out / PROGRESS_FILE, *(out / f"{ORIGINAL}.{language}" for language in suffixes(report))]
    for path in (*kept, *out.glob(f".{PROGRESS_FILE}.*.tmp"), *out.glob(f".{REPORT_FILE}.*.tmp")):
        path.unlink(missing_ok=True)


def suffixes(report: CorpusReport) -> list[str]:
    """Ends of the names of the source and of the target files."""
    return [name.removeprefix("train.") for name in report.files["train"]]


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Say what to do when the folder cannot be written.

    Raises:
        DataError: instead of an :class:`OSError`.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"`{out}` cannot be written: {error.strerror}. What was translated before is kept; when that is mended, "
            "go on with --resume."
        ) from None


def append(path: Path, offset: int, content: bytes) -> int:
    """Write at an offset, in bytes, and drop what an earlier attempt left there; gives the offset after it."""
    with path.open("r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return offset + len(content)


def save(folder: Path, progress: Progress) -> None:
    """Make what is written count."""
    write_atomically(folder / PROGRESS_FILE, msgspec.json.encode(progress))
