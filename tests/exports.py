"""Bundles of one model in several precisions, of which the model is traced once only, since that takes longest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from edgeformer.train.run import Run
from edgeformer_export.export import export_run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_runtime.precision import PRECISIONS, Precision, PrecisionTraits


def export_precisions(run: Run, folder: Path, precisions: Iterable[Precision]) -> dict[Precision, Path]:
    """Export a run for onnxruntime; the bundle of each precision is a folder of its name.

    Models of a few thousand weights lose more by 4 bits than those that the bound of agreement is for.
    """
    model_graphs = ModelGraphs(run)
    with mock.patch.dict(PRECISIONS, with_agreement(0.85)):
        return {
            precision: export_run(run, folder / precision, precision=precision, model_graphs=model_graphs).bundle
            for precision in precisions
        }


def with_agreement(bound: float) -> dict[Precision, PrecisionTraits]:
    """Rows of all quantized precisions with another bound of top-1 agreement, to be patched into the table."""
    return {
        name: replace(traits, tolerances=replace(traits.tolerances, top1_agreement=bound))
        for name, traits in PRECISIONS.items()
        if traits.is_quantized
    }
