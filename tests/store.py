"""Runs and bundles for tests, each made once per test session and shared by all pytest-xdist workers."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from unittest import mock

from filelock import FileLock

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.precision import PRECISIONS, Precision, PrecisionTraits

if TYPE_CHECKING:
    from edgeformer.run.folder import Run
    from edgeformer_export.model_graphs import ModelGraphs
    from edgeformer_export.tracing.to_onnx import TracedGraphs
    from edgeformer_runtime.bundle.manifest import Target


COMMITTED = Path(__file__).parent / "runtime" / "bundles"
"""Bundles in the repository, which ``python -m tests.make_bundles`` wrote: one per precision, and :data:`STATES`."""
STATES = ("free_widths", "ssru")
"""Variants whose states have other kinds of tensors: caches that grow, and cells of a recurrence."""
CPU_PRECISIONS = tuple(name for name, traits in PRECISIONS.items() if traits.optimized_for == "cpu")
QUANTIZED = tuple(name for name, traits in PRECISIONS.items() if traits.is_quantized)


TAUGHT = 100
"""Updates after which outputs of ``post_norm`` end by themselves. A run of it without settings has so many, so that one
trace serves the tests of its graphs and those of its outputs."""


class RunSettings(TypedDict, total=False):
    """Settings that distinguish small runs of the same variant; see :func:`tests.factory.small_run`."""

    steps: int
    """Number of updates that train the model on :data:`tests.factory.PAIRS`; 0, the default of all variants but one,
    leaves weights random."""
    seed: int
    pairs: int
    model: Mapping[str, Any]


class Store:
    """Small runs and their bundles, keyed by their settings.

    Its contents must not be modified, since other tests read them: modify a copy made by :func:`tests.bundles.copy_of`.

    Args:
        folder: an existing folder that all workers share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bundles: set[Path] = set()
        self._model_graphs = cache(self._open_model_graphs)

    def run(self, variant: str = "post_norm", **settings: Unpack[RunSettings]) -> Run:
        """Return a run of one of the variants in :data:`tests.variants.VARIANTS`."""
        from edgeformer.run.folder import Run

        return Run.open(self._run(variant, settings))

    def bundle(
        self,
        variant: str = "post_norm",
        precision: Precision = "fp32",
        target: Target = "ort",
        **settings: Unpack[RunSettings],
    ) -> Path:
        """Return a bundle of a run; see :meth:`run`."""
        run = self._run(variant, settings)

        def export(folder: Path) -> None:
            from edgeformer_export.export import export_run

            model_graphs = self._model_graphs(run, target, precision == "fp16")
            # Models with a few thousand weights lose more from 4 bits than those that the agreement limit is meant for.
            with mock.patch.dict(PRECISIONS, with_agreement(0.85)):
                export_run(
                    model_graphs.run, folder / "bundle", precision=precision, target=target, model_graphs=model_graphs
                )

        bundle = _made_once(run.with_name(f"{run.name}.{target}.{precision}"), export) / "bundle"
        self._bundles.add(bundle)
        return bundle

    def model_graphs(
        self, variant: str = "post_norm", target: Target = "ort", **settings: Unpack[RunSettings]
    ) -> ModelGraphs:
        """Return the graphs of a run, one object for the whole process; see :meth:`run`."""
        return self._model_graphs(self._run(variant, settings), target, False)

    def traced(
        self, variant: str = "post_norm", target: Target = "ort", **settings: Unpack[RunSettings]
    ) -> TracedGraphs:
        """Return the graphs of a run as traced, in a copy that may be modified; see :meth:`run`."""
        return self._traced(self._run(variant, settings), target, False)

    def check(self) -> None:
        """Verify the hashes of all bundles handed out.

        Raises:
            BundleError: a test modified a bundle.
        """
        for bundle in self._bundles:
            open_bundle(bundle)

    def _run(self, variant: str, settings: RunSettings) -> Path:
        def make(folder: Path) -> None:
            from tests.factory import small_run

            small_run(folder, variant, **settings)

        if variant == "post_norm" and not any(settings.values()):
            settings = {"steps": TAUGHT}
        wanted = {key: value for key, value in sorted(settings.items()) if value}
        digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:8] if wanted else "random"
        return _made_once(self._folder / f"{variant}.{digest}", make)

    def _open_model_graphs(self, run: Path, target: Target, for_cuda: bool) -> ModelGraphs:
        from edgeformer.run.folder import Run
        from edgeformer_export.model_graphs import ModelGraphs

        model_graphs = ModelGraphs(Run.open(run), target, for_cuda=for_cuda)
        model_graphs.traced = self._traced(run, target, for_cuda)
        return model_graphs

    def _traced(self, run: Path, target: Target, for_cuda: bool) -> TracedGraphs:
        """Trace a model once for all workers, since tracing takes longer than most tests."""
        import onnx
        import onnx_ir as ir

        from edgeformer_export.tracing.to_onnx import TracedGraphs, to_onnx

        def trace(folder: Path) -> None:
            from edgeformer.run.folder import Run

            traced = to_onnx(Run.open(run).load_model(), target, for_cuda=for_cuda)
            graphs = {file: ir.to_proto(graph).SerializeToString() for file, graph in traced.graphs.items()}
            folder.mkdir()
            (folder / "traced").write_bytes(pickle.dumps((graphs, traced.table)))

        folder = _made_once(run.with_name(f"{run.name}.{target}.{'cuda' if for_cuda else 'cpu'}"), trace)
        graphs, table = pickle.loads((folder / "traced").read_bytes())
        return TracedGraphs(
            {file: ir.from_proto(onnx.ModelProto.FromString(data)) for file, data in graphs.items()}, table
        )


def with_agreement(bound: float) -> dict[Precision, PrecisionTraits]:
    """Return the rows of all quantized precisions with a different minimum top-1 agreement, to patch into the table."""
    return {
        name: replace(traits, tolerances=replace(traits.tolerances, top1_agreement=bound))
        for name, traits in PRECISIONS.items()
        if traits.is_quantized
    }


def _made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Return a folder, made by the worker that needs it first while the others wait."""
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
    return folder
