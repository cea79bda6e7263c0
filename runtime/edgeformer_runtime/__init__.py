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
    from edgeformer_runtime.attention import Attention as Attention
    from edgeformer_runtime.bundle.open import Bundle as Bundle
    from edgeformer_runtime.bundle.open import open_bundle as open_bundle
    from edgeformer_runtime.errors import BundleError as BundleError
    from edgeformer_runtime.errors import CanceledError as CanceledError
    from edgeformer_runtime.errors import DeviceError as DeviceError
    from edgeformer_runtime.errors import EdgeformerError as EdgeformerError
    from edgeformer_runtime.errors import InputError as InputError
    from edgeformer_runtime.errors import InputTooLongError as InputTooLongError
    from edgeformer_runtime.errors import ModelError as ModelError
    from edgeformer_runtime.errors import OptionError as OptionError
    from edgeformer_runtime.errors import SessionError as SessionError
    from edgeformer_runtime.errors import TimedOutError as TimedOutError
    from edgeformer_runtime.scores import Score as Score
    from edgeformer_runtime.search.loop import Counters as Counters
    from edgeformer_runtime.search.options import DecodeOptions as DecodeOptions
    from edgeformer_runtime.search.requests import in_thread as in_thread
    from edgeformer_runtime.translation import Source as Source
    from edgeformer_runtime.translation import TextHypothesis as TextHypothesis
    from edgeformer_runtime.translation import TokenStep as TokenStep
    from edgeformer_runtime.translation import Translation as Translation
    from edgeformer_runtime.translator import Translator as Translator

__version__ = "0.1.0"

os.environ["ORT_DISABLE_TELEMETRY"] = "1"
"""Read when onnxruntime is loaded, which otherwise writes a device ID and contacts a collector."""

_MODULES = {
    "Attention": "attention",
    "Bundle": "bundle.open",
    "BundleError": "errors",
    "CanceledError": "errors",
    "Counters": "search.loop",
    "DecodeOptions": "search.options",
    "DeviceError": "errors",
    "EdgeformerError": "errors",
    "InputError": "errors",
    "InputTooLongError": "errors",
    "ModelError": "errors",
    "OptionError": "errors",
    "Score": "scores",
    "SessionError": "errors",
    "Source": "translation",
    "TextHypothesis": "translation",
    "TimedOutError": "errors",
    "TokenStep": "translation",
    "Translation": "translation",
    "Translator": "translator",
    "in_thread": "search.requests",
    "open_bundle": "bundle.open",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
