"""From a published model to a bundle that is found by name, in stages that are kept until the bundle has its name."""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
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
from edgeformer.run.folder import Run
from edgeformer_export.export import export_run
from edgeformer_export.sample import spread
from edgeformer_export.shortlist.lists import IMPORTED, make_shortlist
from edgeformer_export.stages import MEASURE, READ, TRANSLATE, VERIFY, StageProgress, silent
from edgeformer_export.writer import ExportError, atomic_folder, require_free
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import Origin
from edgeformer_runtime.bundle.text_format import matching_code
from edgeformer_runtime.check.golden import check_golden
from edgeformer_runtime.check.memory import peak_memory_mb
from edgeformer_runtime.engines.base import kernels_problem
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.files import locked_folder, staged_folder
from edgeformer_runtime.models import model as workspace
from edgeformer_runtime.models.names import model_folders, named_models, user_folder
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.translator import Translator

SENTENCES = 20
"""Sentences to measure."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which model to get, and how to make its bundle; see ``edgeformer get --help``."""

    source: str
    name: str = ""
    precision: Precision | None = None
    shortlists: Sequence[str] = ()
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of :func:`~edgeformer.importers.read.read_model`."""
    text: Path | None = None
    folder: Path | None = None
    overwrite: bool = False
    force: bool = False


@dataclass(frozen=True)
class Cost:
    """Cost of getting a model, and of translating sentences with it one by one."""

    seconds: float
    downloaded_bytes: int
    peak_memory_mb: float | None
    """In 10^6 bytes; ``None`` on Windows."""
    ms_per_sentence: float
    sample: Sequence[tuple[str, str]]
    """The sentences, and their translations."""


def get_model(wanted: Wanted, progress: StageProgress = silent) -> tuple[workspace.Model, Cost | None]:
    """Download, import, export, verify and measure a model.

    Returns:
        The model, and what it took; ``None`` if it was there already.

    Raises:
        EdgeformerError: the model cannot be had, or not be represented, or its name is taken.
    """
    begin = time.monotonic()
    if not re.fullmatch(r"(\w[\w.-]*)?", wanted.name):
        raise ConfigError(f"`--name` must consist of letters, digits, `.`, `_` and `-`, but is `{wanted.name}`.")
    known = _known(wanted, lambda origin: is_from(wanted.source, origin.name, origin.revision))
    if known is None:
        downloaded = fetch(wanted.source)
        known = _known(wanted, lambda origin: is_record_of(origin, downloaded))
    if known is not None:
        open_bundle(known.path)  # checks its files
        return known, None
    text = own_text(wanted.text)
    source = sorted(downloaded.origin.items()) or _stamp(downloaded.path)
    reading = sorted(wanted.reading.items()), [_stamp(file) for file in wanted.reading.get("tokenizers", ())]
    work = cache_folder() / "get" / _digest(edgeformer.__version__, source, reading, text)
    work.mkdir(parents=True, exist_ok=True)
    with locked_folder(work):
        try:
            run, path = _imported(work / "run", wanted, downloaded, text, progress)
            bundle = _exported(work, run, wanted, progress)
            ms_per_sentence, sample = _measured(bundle, run, progress)
        except (BundleError, CheckpointError):
            shutil.rmtree(work)  # what was kept is damaged
            raise
        with atomic_folder(path, overwrite=wanted.overwrite) as staging:
            shutil.copytree(bundle, staging, dirs_exist_ok=True)
        shutil.rmtree(work)
    cost = Cost(time.monotonic() - begin, downloaded.nbytes, peak_memory_mb(), ms_per_sentence, sample)
    return workspace.read_model(path.name, path), cost


def _known(wanted: Wanted, is_same: Callable[[Origin], bool]) -> workspace.Model | None:
    """A model from the same source that is as wanted."""
    languages = [wanted.reading.get(f"{side}_language") or "" for side in ("source", "target")]
    for model in () if wanted.overwrite else named_models((wanted.folder,) if wanted.folder else None):
        own = model.manifest.source_language, model.manifest.target_language
        is_meant = all(not want or matching_code(want, [has]) for want, has in zip(languages, own, strict=True))
        is_meant &= wanted.name in ("", model.name) and wanted.precision in (None, model.precision)
        if is_meant and is_same(model.origin):
            return model
    return None


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _stamp(path: Path) -> list[tuple[str, int, int]]:
    """Stamp of a file, or of the files of a folder, which changes with them."""
    files = sorted(file for file in (path, *path.glob("*"), *path.glob("model/*")) if file.exists())
    return [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _imported(
    run: Path, wanted: Wanted, downloaded: Downloaded, text: Sequence[str], progress: StageProgress
) -> tuple[Run, Path]:
    """Import the model, unless that is done, and choose where its bundle will be."""
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
        with staged_folder(run) as staging:
            write_run(found.model, staging, found.origin, text=text, progress=lambda done: progress(TRANSLATE, done))
    return Run.open(run), path


def _default_name(languages: tuple[str, str], downloaded: Downloaded) -> str:
    path = downloaded.path.resolve()
    title = str(downloaded.origin.get("name", path.name if path.is_dir() else path.stem)).rpartition("/")[2]
    name = "-".join(languages) if all(languages) else title
    return re.sub(r"[^\w.-]+", "-", name).lstrip(".-") or "model"


def _require_free(path: Path, *, overwrite: bool) -> None:
    """Make sure that a bundle can be written, and that no other model has its name, wherever names are looked up."""
    for other in (path, *(folder / path.name for folder in model_folders())):
        is_own = other.resolve() == path.resolve()
        if workspace.is_named(other) and not (is_own and overwrite):
            model = workspace.read_model(path.name, other)
            raise ConfigError(
                f"`{path.name}` is already the name of a model, `{other}` (from {model.origin.name or 'elsewhere'}, in "
                f"{model.precision}); choose another with --name"
                + (", or replace that model with --overwrite." if is_own else ".")
            )
    require_free(path, overwrite=overwrite)


def _exported(work: Path, run: Run, wanted: Wanted, progress: StageProgress) -> Path:
    """Export the bundle, unless that is done, and verify it."""
    precision, shortlists = wanted.precision or "int8", wanted.shortlists
    if not shortlists and precision == "int8" and (run.path / SHORTLIST_FILE).is_file() and not kernels_problem():
        shortlists = [IMPORTED]
    bundle = work / _digest(precision, shortlists, [_stamp(Path(file)) for file in shortlists], wanted.force)
    if not bundle.exists():
        shortlist = make_shortlist(run, shortlists, None) if shortlists else None
        export_run(run, bundle, precision=precision, shortlist=shortlist, force=wanted.force, progress=progress)
    progress(VERIFY, 0.0)
    with Translator.open(bundle, shortlist=False) as translator:
        if problems := check_golden(translator).problems:
            raise ExportError(f"The bundle fails its verification on this machine: {'; '.join(problems)}.")
    return bundle


def _measured(bundle: Path, run: Run, progress: StageProgress) -> tuple[float, list[tuple[str, str]]]:
    """Translate a sample one by one, as users do; return the median time in milliseconds, and the translations."""
    sample, times = [], []
    texts = [source for source, _ in spread(run.sample, SENTENCES)]
    with Translator.open(bundle, truncate=True) as translator:
        translator.translate(texts[:1])  # the first call allocates memory
        for number, text in enumerate(texts):
            progress(MEASURE, number / len(texts))
            begin = time.perf_counter()
            sample.append((text, translator.translate([text])[0].text))
            times.append(1000 * (time.perf_counter() - begin))
    return median(times), sample
