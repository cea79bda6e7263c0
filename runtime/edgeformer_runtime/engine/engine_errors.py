"""Errors of ONNX Runtime as errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnxruntime as ort

from edgeformer_runtime.errors import ModelError


@contextmanager
def engine_errors(file: str) -> Iterator[None]:
    """Turn any exception that the engine raises while it opens or runs graph ``file`` into :class:`ModelError`."""
    try:
        yield
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise ModelError(f"onnxruntime {ort.__version__} failed in `{file}`: {error}") from None
