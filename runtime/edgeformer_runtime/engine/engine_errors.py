"""Translates errors of ONNX Runtime into errors of this package."""

from __future__ import annotations

import onnxruntime as ort

from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.errors import ModelError

_MAX_MESSAGE = 1000


def engine_message(error: Exception) -> str:
    """The message of the engine's exception, which may quote a graph, as one line without control characters."""
    return shortened(error, _MAX_MESSAGE)


class EngineErrors:
    """Converts any exception raised by the engine in the ``with`` block to :class:`ModelError`.

    Args:
        file: the graph that the block opens or runs.
    """

    __slots__ = ("_file",)

    def __init__(self, file: str) -> None:
        self._file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):  # onnxruntime's own exceptions share no base class
            raise ModelError(
                f"onnxruntime {ort.__version__} failed in `{self._file}`: {engine_message(error)}"
            ) from None
