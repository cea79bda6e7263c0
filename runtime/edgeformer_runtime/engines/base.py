"""Sessions of bundles, and which engine runs them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.engines import ENGINES, Engine
from edgeformer_runtime.errors import BundleError, DeviceError, OptionError
from edgeformer_runtime.search.session import StepSession


class BundleSession(StepSession):
    """A bundle on some engine. Thread-safe.

    Pickled, it is the path of the bundle with its manifest, which unpickling opens again.

    Args:
        bundle: a checked bundle.
        device: ``cpu`` or ``cuda``.
        threads: CPU threads per operator.
    """

    engine: ClassVar[Engine]
    uses_shortlist = False
    """Whether searches are restricted by the bundle's shortlist."""

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        self.bundle, self.device, self.threads = bundle, device, threads
        self.special = bundle.manifest.special
        self.max_source_length = bundle.manifest.max_source_length
        self.max_target_length = bundle.manifest.max_target_length

    @abstractmethod
    def close(self) -> None:
        """Free the model, once the batches that other threads have begun are done."""

    def batch_bytes(self, sentences: int, rows: int, source_length: int, length: int) -> int:
        """Estimate the memory of a batch; see
        :meth:`~edgeformer_runtime.search.session.StepSession.batch_bytes`."""
        sizes = {
            contract.SENTENCES: sentences,
            contract.ROWS: rows,
            contract.SOURCE_AXIS: source_length,
            contract.PAST_AXIS: length,
            contract.CAPACITY_AXIS: length,
        }
        manifest = self.bundle.manifest
        state = sum(nbytes * math.prod(sizes[axis] for axis in axes) for axes, nbytes in _sizes(manifest.state))
        logits = rows * manifest.target_vocab_size * np.dtype(np.float32).itemsize
        return 2 * (state + logits)  # old and new, while a step or a selection replaces one by the other

    def __reduce__(self) -> tuple[Callable[..., BundleSession], tuple[object, ...]]:
        bundle = replace(self.bundle, path=self.bundle.path.absolute())
        settings = self.engine, self.device, self.threads, self.uses_shortlist, self.special.prefix
        return _reopened, (bundle, *settings)


def choose_engine(bundle: Bundle, engine: str, device: str) -> Engine:
    """Return the engine that a bundle runs on.

    Args:
        bundle: a checked bundle.
        engine: ``auto`` for the kernels if the bundle has a plan and they are installed; or one of :data:`ENGINES`.
        device: ``cpu`` or ``cuda``.

    Raises:
        BundleError: the bundle has no plan for the kernels.
        DeviceError: the kernels are not installed, or do not run on the device.
        OptionError: there is no such engine.
    """
    if engine not in ("auto", *ENGINES):
        raise OptionError(f"`engine` must be one of auto, {', '.join(ENGINES)}, but is `{engine}`.")
    has_plan = bundle.manifest.plan is not None
    if engine == "kernels":
        if device != "cpu":
            raise DeviceError(f"The kernels run on the CPU, not on `{device}`; choose the engine `onnxruntime`.")
        if not has_plan:
            raise BundleError(
                f"Bundle `{bundle.path}` has no plan for the kernels, which `edgeformer export --precision int8` writes"
                " for Transformers; choose the engine `onnxruntime`."
            )
        if problem := kernels_problem():
            raise DeviceError(f"{problem}; {_INSTALL}")
        return "kernels"
    return "kernels" if engine == "auto" and device == "cpu" and has_plan and not kernels_problem() else "onnxruntime"


_INSTALL = "in a clone, pip install ./runtime/edgeformer-kernels compiles them"


def kernels_advice(bundle: Bundle) -> str:
    """Advice on how to run a bundle on the kernels; empty if it runs there already, or cannot."""
    manifest, problem = bundle.manifest, kernels_problem()
    if manifest.plan is not None:
        advice = problem and f"{problem}; {_INSTALL}"
    elif manifest.precision[contract.DECODER_FILE] != "int8" or manifest.report.kernels:
        return ""  # another precision, or a model that they do not compute
    else:
        before = problem and f" once they are installed here: {_INSTALL}"
        advice = f"it was exported without them; export it again{before}"
    return advice and f"`{bundle.path}` would run several times faster on the kernels, but {advice}."


def kernels_problem() -> str:
    """Reason why the kernels cannot be used on this machine; empty if they can."""
    try:
        import edgeformer_runtime.engines.kernels  # noqa: F401
    except ModuleNotFoundError:
        return "edgeformer-kernels is not installed here"
    except ImportError as error:
        return str(error)
    return ""


def open_session(bundle: Bundle, *, engine: Engine, device: str, threads: int, shortlist: bool) -> BundleSession:
    """Open a bundle on an engine, which is imported now; see :meth:`~edgeformer_runtime.translator.Translator.open`."""
    if engine == "kernels":
        from edgeformer_runtime.engines.kernels import KernelSession

        return KernelSession(bundle, shortlist=shortlist)
    from edgeformer_runtime.engines.onnx import OnnxSession

    return OnnxSession(bundle, device=device, threads=threads)


def _reopened(
    bundle: Bundle, engine: Engine, device: str, threads: int, shortlist: bool, prefix: tuple[int, ...]
) -> BundleSession:
    """Open a session that was pickled.

    Raises:
        BundleError: the bundle has changed, or cannot be opened.
    """
    opened = open_bundle(bundle.path)
    if opened.manifest != bundle.manifest:
        raise BundleError(f"Bundle `{bundle.path}` has changed since it was opened; open it again.")
    choose_engine(opened, engine, device)  # says so if the engine is not installed here
    session = open_session(opened, engine=engine, device=device, threads=threads, shortlist=shortlist)
    return session.with_prefix(prefix)


@cache
def _sizes(table: tuple[StateTensor, ...]) -> list[tuple[tuple[str, ...], int]]:
    """The bytes that tensors with the same letters in their axes have together for each index of these axes."""
    sizes: Counter[tuple[str, ...]] = Counter()
    for tensor in table:
        letters = tuple(axis for axis in tensor.axes if isinstance(axis, str))
        fixed = math.prod(axis for axis in tensor.axes if isinstance(axis, int))
        sizes[letters] += fixed * np.dtype(tensor.dtype).itemsize
    return list(sizes.items())
