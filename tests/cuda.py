"""Support for tests that require a GPU usable by onnxruntime, and the reason to skip them if there is none."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import onnxruntime as ort
import pytest

from edgeformer_runtime.engines.graphs import rows_graph
from edgeformer_runtime.engines.onnx import PROVIDERS
from edgeformer_runtime.precision import PRECISIONS, Precision

WIDE = {"d_model": 128, "d_ff": 256, "heads": 4}
"""Sizes of small models whose caches CUDA can write in place: heads of width 32."""


@cache
def cuda_problem() -> str:
    """Return why CUDA cannot be used here; empty if it can."""
    provider = PROVIDERS["cuda"]
    if provider not in ort.get_available_providers():
        return "the installed onnxruntime has no CUDA provider"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with redirect_stdout(io.StringIO()):
        ort.preload_dlls()
        graph = ort.InferenceSession(rows_graph("float32"), options, providers=[provider])
    return "" if graph.get_providers()[0] == provider else "CUDA does not start on this machine"


def refuse_unusable(device: str) -> None:
    """End the tests if they were asked to run on a device that cannot be used, instead of skipping them all."""
    if device == "cuda" and (problem := cuda_problem()):
        raise pytest.UsageError(f"--device cuda was given, but {problem}")


def skip_unless_supported(precision: Precision, device: str) -> None:
    """Skip a test of a precision for which a device has no kernels."""
    if device not in PRECISIONS[precision].devices:
        pytest.skip(f"{precision} graphs do not run on {device}")


def sizes(variant: str, device: str) -> Mapping[str, Any]:
    """Return the settings with which a small model of one of the factory's variants runs on a device."""
    from tests.variants import VARIANTS

    settings = VARIANTS[variant]
    return WIDE if device == "cuda" and settings["family"] == "transformer" and "d_k" not in settings else {}


needs_cuda = pytest.mark.skipif(bool(cuda_problem()), reason=cuda_problem())
"""Skips a test if CUDA cannot be used."""
