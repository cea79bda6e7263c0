"""From a published model to a bundle that is found by name: an import, then an export."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError
from edgeformer.importers.downloads import ModelDownload, is_from
from edgeformer.importers.read import fetch, is_record_of, read_model
from edgeformer.importers.run_folder import SHORTLIST_FILE, write_run
from edgeformer.importers.sample import own_text
from edgeformer_export.export import export_run
from edgeformer_export.shortlist.lists import IMPORTED, make_shortlist
from edgeformer_export.stages import READ, TRANSLATE, StageProgress, silent
from edgeformer_export.writer import require_free
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import Origin
from edgeformer_runtime.bundle.text_format import matching_code
from edgeformer_runtime.engines.base import kernels_problem
from edgeformer_runtime.files import make_folder, temporary
from edgeformer_runtime.models import model as workspace
from edgeformer_runtime.models.names import model_folders, named_models, user_folder
from edgeformer_runtime.precision import Precision


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A model to get, and settings of its bundle; see ``edgeformer get --help``."""

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


Sample = Sequence[tuple[str, str]]
"""Sentences and their translations."""


def get_model(request: ModelRequest, progress: StageProgress = silent) -> tuple[workspace.Model, Sample | None]:
    """Download, import and export a model.

    Returns:
        The model, and a sample of its translations; ``None`` if it was there already.

    Raises:
        EdgeformerError: the model cannot be had, or not be represented, or its name is taken.
    """
    if not re.fullmatch(r"(\w[\w.-]*)?", request.name):
        raise ConfigError(f"`--name` must consist of letters, digits, `.`, `_` and `-`, but is `{request.name}`.")
    known = _known(request, lambda origin: is_from(request.source, origin.name, origin.revision))
    if known is None:
        downloaded = fetch(request.source)
        known = _known(request, lambda origin: is_record_of(origin, downloaded))
    if known is not None:
        open_bundle(known.path)  # checks its files
        return known, None
    text = own_text(request.text)
    progress(READ, 0.0)
    found = read_model(downloaded, **request.reading)
    name = request.name or default_name((found.model.source_language, found.model.target_language), downloaded)
    out = (request.folder or user_folder()) / name
    _require_free(out, overwrite=request.overwrite)
    make_folder(out.parent)
    with temporary(out.with_name(f"{name}.import"), create=lambda folder: folder.mkdir()) as folder:
        imported = partial(progress, TRANSLATE)
        run = write_run(found.model, folder / "run", found.origin, text=text, progress=imported)
        precision, shortlists = request.precision or "int8", request.shortlists
        if not shortlists and precision == "int8" and (run.path / SHORTLIST_FILE).is_file() and not kernels_problem():
            shortlists = [IMPORTED]
        export_run(
            run,
            out,
            precision=precision,
            overwrite=request.overwrite,
            force=request.force,
            shortlist=make_shortlist(run, shortlists, None) if shortlists else None,
            progress=progress,
        )
        return workspace.read_model(name, out), run.sample


def _known(request: ModelRequest, is_same: Callable[[Origin], bool]) -> workspace.Model | None:
    """A model from the same source that is as requested."""
    languages = [request.reading.get(f"{side}_language") or "" for side in ("source", "target")]
    for model in () if request.overwrite else named_models((request.folder,) if request.folder else None):
        own = model.manifest.source_language, model.manifest.target_language
        is_meant = all(not want or matching_code(want, [has]) for want, has in zip(languages, own, strict=True))
        is_meant &= request.name in ("", model.name) and request.precision in (None, model.precision)
        if is_meant and is_same(model.origin):
            return model
    return None


def default_name(languages: tuple[str, str], downloaded: ModelDownload) -> str:
    """Name of a model: its languages, such as ``en-fr``, or that of where it comes from."""
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
