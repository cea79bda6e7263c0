"""Run encoder-decoder bundles on onnxruntime. Needs neither torch nor onnx.

>>> from edgeformer_runtime import Translator
>>> Translator.open("bundle").translate(["A dog runs."], beam_size=4)[0].text  # doctest: +SKIP
'Un chien court.'

Names are imported on first use, so importing the package, for example to catch its errors, does not load onnxruntime.
Importing it switches the telemetry of onnxruntime off, for this process and its children.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeformer_runtime.attention import Attention
    from edgeformer_runtime.bundle.open import Bundle, open_bundle
    from edgeformer_runtime.decoding.loop import Counters
    from edgeformer_runtime.decoding.options import DecodeOptions
    from edgeformer_runtime.decoding.requests import in_thread
    from edgeformer_runtime.errors import (
        BundleError,
        CanceledError,
        DeviceError,
        EdgeformerError,
        InputError,
        InputTooLongError,
        ModelError,
        OptionError,
        SessionError,
        TimedOutError,
    )
    from edgeformer_runtime.scores import Score
    from edgeformer_runtime.source import Source
    from edgeformer_runtime.token_stream import TokenStep
    from edgeformer_runtime.translation import TextHypothesis, Translation
    from edgeformer_runtime.translator import Translator

__version__ = "0.1.0"

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
"""Read when onnxruntime is loaded, which otherwise writes a device ID and contacts a collector."""

__all__ = [
    "Attention",
    "Bundle",
    "BundleError",
    "CanceledError",
    "Counters",
    "DecodeOptions",
    "DeviceError",
    "EdgeformerError",
    "InputError",
    "InputTooLongError",
    "ModelError",
    "OptionError",
    "Score",
    "SessionError",
    "Source",
    "TextHypothesis",
    "TimedOutError",
    "TokenStep",
    "Translation",
    "Translator",
    "in_thread",
    "open_bundle",
]

_MODULES = {
    "attention": ("Attention",),
    "bundle.open": ("Bundle", "open_bundle"),
    "decoding.loop": ("Counters",),
    "errors": (
        "BundleError",
        "CanceledError",
        "DeviceError",
        "EdgeformerError",
        "InputError",
        "InputTooLongError",
        "ModelError",
        "OptionError",
        "SessionError",
        "TimedOutError",
    ),
    "decoding.options": ("DecodeOptions",),
    "decoding.requests": ("in_thread",),
    "scores": ("Score",),
    "source": ("Source",),
    "token_stream": ("TokenStep",),
    "translation": ("TextHypothesis", "Translation"),
    "translator": ("Translator",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
