"""Translates errors of ONNX Runtime into errors of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnxruntime as ort

from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.errors import ModelError

_MAX_MESSAGE = 1000


def engine_message(error: Exception) -> str:
    """The message of the engine's exception, which may quote a graph, as one line without control characters."""
    return shortened(error, _MAX_MESSAGE)


@contextmanager
def engine_errors(file: str) -> Iterator[None]:
    """Convert any exception raised by the engine while opening or running graph ``file`` to :class:`ModelError`."""
    try:
        yield
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise ModelError(f"onnxruntime {ort.__version__} failed in `{file}`: {engine_message(error)}") from None
