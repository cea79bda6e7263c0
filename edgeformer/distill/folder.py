"""The folder of a distillation in progress: its settings, and a file for each block of pairs that is done, so that the
work can be stopped at any point, and the result is the same byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import DataConfig, Recipe
from edgeformer.data.corpora import CorpusReport
from edgeformer.data.text import Pair
from edgeformer.errors import ConfigError, DataError
from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.files import clear_stale

PROGRESS_FILE = "progress.json"
ORIGINAL = "original"
"""Name of the files with the original training pairs, which are kept until the work is complete."""
BLOCKS = "blocks"
"""Name of the folder with the blocks that are done."""


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of a distillation; it can only be resumed with the same ones."""

    teacher: str
    """Name of the teacher's folder."""
    teacher_sha256: str
    """SHA-256 of its manifest, which lists those of all its files."""
    beam_size: int
    """Hypotheses kept per sentence."""
    length_penalty: float
    """Exponent of the length by which a score is divided."""
    n_best: int = 1
    """Translations kept of each source, best first."""
    closest: str = ""
    """If set, keep the one translation of the beam that is closest to the original target, by sentence BLEU with this
    tokenizer of sacreBLEU (sequence-level interpolation)."""


class Block(msgspec.Struct, kw_only=True, frozen=True):
    """What became of some consecutive pairs."""

    pairs: list[Pair]
    """Pairs to write; more than were read if several translations of each are kept."""
    too_long: int
    """Pairs that keep their reference because the source has more tokens than the teacher accepts."""
    unfinished: int
    """Pairs that keep their reference because every translation is empty or reached the length limit."""


class Progress(msgspec.Struct, kw_only=True, frozen=True):
    """Content of :data:`PROGRESS_FILE`, which is written at the beginning."""

    job: Job
    data: DataConfig
    """Section ``[data]`` of the recipe."""
    report: CorpusReport
    """Of the original corpus."""
    size: int
    """Pairs of a block."""

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return -(-self.report.pairs["train"] // self.size)


def resumed(out: Path, recipe: Recipe | None, settings: dict[str, Any]) -> Progress:
    """Read the settings of an interrupted distillation, and check that it is resumed with the same ones.

    Args:
        out: the folder.
        recipe: the recipe that names the corpus; ``None`` skips the comparison.
        settings: fields of :class:`Job` to compare.

    Raises:
        ConfigError: there is nothing to resume, or it was started with other settings.
        DataError: a file is missing or damaged.
    """
    try:
        progress = msgspec.json.decode((out / PROGRESS_FILE).read_bytes(), type=Progress)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"`{out}` holds nothing to resume; start without --resume.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"`{out / PROGRESS_FILE}` is damaged: {error}. Start again in another folder.") from None
    refuse_other(out, msgspec.to_builtins(progress.job), settings)
    if recipe is not None and recipe.data != progress.data:
        now, before = msgspec.to_builtins(recipe.data), msgspec.to_builtins(progress.data)
        keys = ", ".join(f"`data.{key}`" for key in now if now[key] != before[key])
        raise ConfigError(f"`{out}` was started with another recipe, which differs in {keys}; leave RECIPE out.")
    for language, sha256 in zip(suffixes(progress.report), progress.report.files["train"].values(), strict=True):
        original = out / f"{ORIGINAL}.{language}"
        if not original.is_file() or file_sha256(original) != sha256:
            raise DataError(f"`{original}` is missing or has changed; start again in another folder.")
    return progress


def refuse_other(out: Path, before: dict[str, Any], settings: dict[str, Any]) -> None:
    """Compare fields of a :class:`Job` with their former values.

    Raises:
        ConfigError: one differs.
    """
    differing = [key for key in settings if settings[key] != before.get(key)]
    if "teacher_sha256" in differing:
        raise ConfigError(
            f"`{out}` was started with another teacher, `{before.get('teacher')}`, whose manifest has SHA-256 "
            f"{before.get('teacher_sha256')}; use that one, or another --out."
        )
    if differing:
        listed = "; ".join(f"`{key}` was {before.get(key)!r} and is now {settings[key]!r}" for key in differing)
        raise ConfigError(
            f"`{out}` was started with other settings: {listed}. Leave them out, or choose another --out."
        )


def tidy(out: Path, report: CorpusReport) -> None:
    """Remove what only served to resume, and files that an interruption left half written."""
    for path in (out / PROGRESS_FILE, *(out / f"{ORIGINAL}.{language}" for language in suffixes(report))):
        path.unlink(missing_ok=True)
    shutil.rmtree(out / BLOCKS, ignore_errors=True)
    clear_stale(out)


def suffixes(report: CorpusReport) -> list[str]:
    """File suffixes of the source and of the target side."""
    return [name.removeprefix("train.") for name in report.files["train"]]


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn a failed write into an error that says what to do.

    Raises:
        DataError: instead of an :class:`OSError`.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"`{out}` cannot be written: {error.strerror}. What has been translated is kept; once that is fixed, "
            "continue with --resume."
        ) from None
