"""Bundles of one model in several precisions, of which the model is traced once only, since that takes longest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from unittest import mock

from edgeformer.train.run import Run
from edgeformer_export.export import export_run
from edgeformer_export.model_graphs import Prepared
from edgeformer_export.parity import comparison as parity
from edgeformer_runtime.bundle.manifest import Precision


def export_precisions(run: Run, folder: Path, precisions: Iterable[Precision]) -> dict[Precision, Path]:
    """Export a run for onnxruntime; the bundle of each precision is a folder of its name.

    Models of a few thousand weights lose more by 4 bits than those that the bound of agreement is for.
    """
    prepared = Prepared(run)
    with mock.patch.object(parity, "MIN_TOP1_AGREEMENT", 0.85):
        return {
            precision: export_run(run, folder / precision, precision=precision, prepared=prepared).bundle
            for precision in precisions
        }
