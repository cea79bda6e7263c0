"""From the name or the files of a published model to a bundle that is found by name, in stages that are kept.

What is downloaded, imported or exported is in the cache until the bundle has its name, so that an interrupted call
continues with the stage that it was in.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import edgeformer
from edgeformer.data.download import cache_folder
from edgeformer.errors import CheckpointError, ConfigError
from edgeformer.importers.downloads import Downloaded, is_from
from edgeformer.importers.read import fetch, is_record_of, read_model
from edgeformer.importers.run_folder import SHORTLIST_FILE, write_run
from edgeformer.importers.sample import own_text
from edgeformer.train.run import Run
from edgeformer_export.export import export_run
from edgeformer_export.sample import spread
from edgeformer_export.shortlist.lists import IMPORTED, make_shortlist
from edgeformer_export.stages import MEASURE, READ, TRANSLATE, VERIFY, StageProgress, silent
from edgeformer_export.writer import ExportError, atomic_folder, require_free
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.engine.memory import peak_memory_mb
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.files import locked_folder, staged_folder
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.selfcheck.golden import check_golden
from edgeformer_runtime.translator import Translator
from edgeformer_runtime.workspace.model import Model, is_named
from edgeformer_runtime.workspace.model import read_model as read_bundle_model
from edgeformer_runtime.workspace.names import model_folders, named_models, user_folder

DEFAULT_PRECISION: Precision = "int8"
SENTENCES = 20
"""Sentences to measure."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which model to get, and how to make its bundle."""

    source: str
    """Name of a published model, or a file or folder."""
    name: str = ""
    """Name of the bundle; by default, its languages, as in ``en-fr``, or the name of the model."""
    precision: Precision | None = None
    """Precision of the bundle; ``None`` for :data:`DEFAULT_PRECISION`."""
    shortlists: Sequence[str] = ()
    """Text to learn a shortlist from; by default, the model's own lists."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of :func:`~edgeformer.importers.read.read_model`."""
    text: Path | None = None
    """Sentences of the source language; see :func:`~edgeformer.importers.run_folder.write_run`."""
    folder: Path | None = None
    """Folder of models to put it in; by default, the user's own."""
    overwrite: bool = False
    """Replace the bundle that has the name, and get the newest revision."""
    force: bool = False
    """Accept a quantized bundle that is too far from PyTorch."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What it took, in this call."""

    seconds: float
    downloaded_bytes: int
    peak_memory_mb: float | None
    """In 10^6 bytes; ``None`` on Windows."""
    measured: Measured


@dataclass(frozen=True)
class Measured:
    """Translations of a sample, one by one."""

    sample: Sequence[tuple[str, str]]
    """Sentences and their translations."""
    ms_per_sentence: float
    """Median time."""
    tokens_per_sentence: float
    """Mean length of the translations."""


@dataclass(frozen=True)
class Got:
    """A model that is found by name."""

    model: Model
    cost: Cost | None
    """``None`` if it was there already."""


def get_model(wanted: Wanted, progress: StageProgress = silent) -> Got:
    """Download, import, export, verify and measure a model, unless it is there already.

    Args:
        wanted: which model.
        progress: called during the work.

    Raises:
        EdgeformerError: the model cannot be had, or not be represented, or its name is taken.
    """
    begin = time.monotonic()
    if not re.fullmatch(r"(\w[\w.-]*)?", wanted.name):
        raise ConfigError(f"`--name` must consist of letters, digits, `.`, `_` and `-`, but is `{wanted.name}`.")
    known = _known(wanted, None)
    if known is None:
        downloaded = fetch(wanted.source)
        known = _known(wanted, downloaded)
    if known is not None:
        _check(known)
        return Got(known, None)
    work = cache_folder() / "get" / _digest(wanted, downloaded)
    work.mkdir(parents=True, exist_ok=True)
    with locked_folder(work):
        try:
            run, path = _imported(work / "run", wanted, downloaded, progress)
            bundle = _exported(work, run, wanted, progress)
            measured = _measured(bundle, run, progress)
        except (BundleError, CheckpointError):
            shutil.rmtree(work)  # what was kept is damaged
            raise
        with atomic_folder(path, overwrite=wanted.overwrite) as staging:
            shutil.copytree(bundle, staging, dirs_exist_ok=True)
        shutil.rmtree(work)
    cost = Cost(
        seconds=time.monotonic() - begin,
        downloaded_bytes=downloaded.nbytes,
        peak_memory_mb=peak_memory_mb(),
        measured=measured,
    )
    return Got(read_bundle_model(path.name, path), cost)


def _known(wanted: Wanted, downloaded: Downloaded | None) -> Model | None:
    """A model that was got from the same source before, and is as wanted.

    Args:
        wanted: which model.
        downloaded: its files; ``None`` to judge by its name alone, without a network.
    """
    if wanted.overwrite:
        return None
    for model in named_models(wanted.folder and [wanted.folder]):
        manifest, origin = model.manifest, model.origin
        is_as_wanted = all(
            asked in ("", None, present)
            for asked, present in (
                (wanted.name, model.name),
                (wanted.precision, manifest.precision["decoder.onnx"]),
                (wanted.reading.get("source_language"), manifest.source_language),
                (wanted.reading.get("target_language"), manifest.target_language),
            )
        )
        if is_as_wanted and (
            is_from(wanted.source, origin.name, origin.revision)
            if downloaded is None
            else is_record_of(origin, downloaded)
        ):
            return model
    return None


def _check(model: Model) -> None:
    """Check the files of a model that is there already.

    Raises:
        BundleError: they are damaged.
    """
    try:
        open_bundle(model.path)
    except BundleError as error:
        raise BundleError(f"{error} To get it again, add --overwrite.") from None


def _digest(wanted: Wanted, downloaded: Downloaded) -> str:
    """Everything that an imported run depends on."""
    source = [sorted(downloaded.origin.items())] if downloaded.origin else _stamps(downloaded.path)
    given = [_stamps(file) for file in (wanted.text, *wanted.reading.get("tokenizers", ()))]
    parts = [edgeformer.__version__, source, sorted(wanted.reading.items()), given]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stamps(path: Path | None) -> list[tuple[str, int, int]]:
    """Names, sizes and times of a file, or of the files of a folder."""
    if path is None or not path.exists():
        return []
    files = [path] if path.is_file() else sorted(file for each in ("*", "*/*") for file in path.glob(each))
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _imported(run: Path, wanted: Wanted, downloaded: Downloaded, progress: StageProgress) -> tuple[Run, Path]:
    """Import the model, unless that is done, and choose where its bundle will be.

    Raises:
        ConfigError: the name is taken.
    """
    found = None
    if run.exists():
        languages = Run.open(run).languages
    else:
        progress(READ, 0.0)
        found = read_model(downloaded, **wanted.reading)
        languages = found.model.source_language, found.model.target_language
    path = (wanted.folder or user_folder()) / (wanted.name or _default_name(languages, downloaded))
    _require_free(path, overwrite=wanted.overwrite)
    if found is not None:
        text = own_text(wanted.text)
        with staged_folder(run) as staging:
            write_run(found.model, staging, found.origin, text=text, progress=lambda done: progress(TRANSLATE, done))
    return Run.open(run), path


def _default_name(languages: tuple[str, str], downloaded: Downloaded) -> str:
    path = downloaded.path.resolve()
    title = str(downloaded.origin.get("name", path.name if path.is_dir() else path.stem)).rpartition("/")[2]
    name = "-".join(languages) if all(languages) else title
    return re.sub(r"[^\w.-]+", "-", name).lstrip(".-") or "model"


def _require_free(path: Path, *, overwrite: bool) -> None:
    """Make sure that a bundle can be written, and that no other model has its name, wherever names are looked up.

    Raises:
        ConfigError: one has it.
        ExportError: something else than a bundle is in its place.
    """
    for other in (path, *(folder / path.name for folder in model_folders())):
        is_own = other.resolve() == path.resolve()
        if not is_named(other) or (is_own and overwrite):
            continue
        model = read_bundle_model(path.name, other)
        raise ConfigError(
            f"`{path.name}` is already the name of a model, `{other}` (from {model.origin.name or 'elsewhere'}, in "
            f"{model.manifest.precision['decoder.onnx']}); choose another with --name"
            + (", or replace that model with --overwrite." if is_own else ".")
        )
    require_free(path, overwrite=overwrite)


def _exported(work: Path, run: Run, wanted: Wanted, progress: StageProgress) -> Path:
    """Export and verify the bundle, unless that is done.

    Raises:
        ExportError: the bundle does not compute here what it did while it was exported.
    """
    precision = wanted.precision or DEFAULT_PRECISION
    shortlists = list(wanted.shortlists)
    if not shortlists and (run.path / SHORTLIST_FILE).is_file() and PRECISIONS[precision].optimized_for != "cuda":
        shortlists = [IMPORTED]
    parts = [shortlists, [_stamps(Path(file)) for file in shortlists], wanted.force]
    bundle = work / f"{precision}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
    if not bundle.exists():
        shortlist = make_shortlist(run, shortlists, None) if shortlists else None
        export_run(run, bundle, precision=precision, shortlist=shortlist, force=wanted.force, progress=progress)
    progress(VERIFY, 0.0)
    with Translator.open(bundle, shortlist=False) as translator:
        if problems := check_golden(translator).problems:
            raise ExportError(f"The bundle fails its verification on this machine: {'; '.join(problems)}.")
    return bundle


def _measured(bundle: Path, run: Run, progress: StageProgress) -> Measured:
    """Translate a sample as users do."""
    sample, times, tokens = [], [], 0
    texts = [source for source, _ in spread(run.sample, SENTENCES)]
    with Translator.open(bundle, truncate=True) as translator:
        translator.translate(texts[:1])  # the first call allocates memory
        for number, text in enumerate(texts):
            progress(MEASURE, number / len(texts))
            begin = time.perf_counter()
            translation = translator.translate([text])[0]
            times.append(1000 * (time.perf_counter() - begin))
            sample.append((text, translation.text))
            tokens += len(translation.tokens)
    return Measured(sample, median(times), tokens / len(texts))
