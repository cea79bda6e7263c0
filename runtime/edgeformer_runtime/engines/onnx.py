"""The decode loop's session on ONNX Runtime. Tensors stay on the device, except tokens and logits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Self

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.graphs import check_graph
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.engines.cpus import available_cpus, useful_threads
from edgeformer_runtime.errors import BundleError, DeviceError, SessionError
from edgeformer_runtime.limits import MAX_THREADS
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.options import check_count
from edgeformer_runtime.search.session import IntArray

try:
    import onnxruntime as ort

    from edgeformer_runtime.engines.best_tokens import OnnxBestTokens, graphs_on_demand
    from edgeformer_runtime.engines.cuda import DeviceRows, DeviceTensors, check_cuda
    from edgeformer_runtime.engines.onnx_graphs import (
        EXACT_PRODUCTS,
        StepGraph,
        engine_errors,
        engine_message,
        products_saturate,
        quiet_options,
    )
    from edgeformer_runtime.engines.onnx_state import OnnxState
    from edgeformer_runtime.engines.state_tensors import StateTensors
except ModuleNotFoundError:
    raise DeviceError(
        "onnxruntime is not installed: pip install 'edgeformer[cpu]', or 'edgeformer[gpu]' for CUDA."
    ) from None


def _print_to_stderr(*values: object) -> None:
    sys.stderr.write(" ".join(map(str, values)) + "\n")


vars(ort)["print"] = _print_to_stderr  # `preload_dlls` prints; standard output is the application's, in all its threads
if hasattr(ort, "disable_telemetry_events"):  # in case the application loaded onnxruntime before this package
    ort.disable_telemetry_events()

ENGINE_VERSION: str = ort.__version__
"""Version of the installed onnxruntime."""
MIN_ENGINE_VERSION = "1.31.1"
"""Oldest onnxruntime that was seen to refuse weights outside the folder of a graph, whatever names them."""
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Device names and their execution providers."""
SETTINGS: dict[str, dict[str, str]] = {
    "cpu": {},
    "cuda": {"use_tf32": "0", "enable_skip_layer_norm_strict_mode": "1"},
}
"""Provider settings. By default, CUDA multiplies float32 with 10 bits of mantissa (TF32), and some versions accumulate
float16 norms in float16."""


@dataclass
class _Graphs:
    """The opened graphs of a bundle, which all sessions of one model share."""

    encoder: ort.InferenceSession
    steps: dict[str, StepGraph]
    """Opened step graphs by file."""
    lock: Lock = field(default_factory=Lock)
    is_closed: bool = False


class OnnxSession(BundleSession):
    """A bundle's two graphs, opened on one device. Thread-safe.

    It belongs to the process that opened it: the engine's threads do not survive a fork.
    """

    engine = "onnxruntime"

    def __init__(self, bundle: Bundle, *, device: str = "cpu", threads: int = 0) -> None:
        """Open the graphs.

        Args:
            bundle: a checked bundle.
            device: ``cpu`` or ``cuda``.
            threads: CPU threads per operator; 0 for :func:`~edgeformer_runtime.engines.cpus.useful_threads`.

        Raises:
            DeviceError: the device is unknown, unsupported by the installed onnxruntime, or unsuitable for the bundle;
                or onnxruntime is too old.
            BundleError: onnxruntime refuses a graph.
            OptionError: ``threads`` is out of range.
        """
        check_count("threads", threads, 0, MAX_THREADS)
        self._manifest = bundle.manifest
        self._table = bundle.manifest.state
        device = check_device(device)
        if device == "cuda":
            check_cuda(bundle.manifest)
        _check_version()
        threads = threads or useful_threads(bundle.nbytes, available_cpus())
        super().__init__(bundle, device, threads)
        self.row_multiple = max(PRECISIONS[name].row_multiple for name in bundle.manifest.precision.values())
        self._options = options = self._session_options(threads)
        self._process = os.getpid()
        # Open the larger graph first: while loading it, the engine holds three copies of the output projection.
        file = contract.DECODER_FILE
        decoder, encoder = self._open(file, contract.ENCODER_FILE)
        self._graphs = _Graphs(encoder, {file: self._step_graph(file, decoder)})
        self.make_tensors: Callable[..., StateTensors] = StateTensors
        """Creates the tensors of a new state; takes the arguments of :class:`StateTensors`."""
        if device != "cpu":
            dtypes = {tensor.dtype for tensor in self._table}
            rows = DeviceRows(dtypes, device, options, [(PROVIDERS[device], SETTINGS[device])])
            self.make_tensors = partial(DeviceTensors, rows=rows)
        self._best_tokens = graphs_on_demand(options)

    @property
    def best_tokens(self) -> OnnxBestTokens:
        """Finds the most probable extensions in one search; see
        :attr:`~edgeformer_runtime.search.session.StepSession.best_tokens`."""
        return OnnxBestTokens(self._best_tokens)

    def start(self, source: IntArray, source_length: IntArray) -> OnnxState:
        """Run the encoder; see :meth:`~edgeformer_runtime.search.session.StepSession.start`.

        Raises:
            ModelError: the engine fails.
            SessionError: the session is closed, or was opened before a fork.
        """
        decoder = self._opened(contract.DECODER_FILE)
        return OnnxState(self._encoded(source, source_length), decoder, self._opened_attention, source.shape[1])

    def _encoded(self, source: IntArray, source_length: IntArray) -> StateTensors:
        """Run the encoder on sources ``(N, S)`` with true lengths ``(N,)``."""
        encoder = self._graphs.encoder
        self._verify_open()
        emitted = [tensor.name for tensor in self._table if tensor.from_encoder]
        with engine_errors(contract.ENCODER_FILE):
            binding = encoder.io_binding()
            binding.bind_cpu_input(contract.SOURCE, source)
            binding.bind_cpu_input(contract.SOURCE_LENGTH, source_length)
            for name in emitted:
                binding.bind_output(name, self.device)
            encoder.run_with_iobinding(binding)
            return self.make_tensors(
                dict(zip(emitted, binding.get_outputs(), strict=True)),
                self._table,
                self.device,
                sentences=len(source),
                max_length=self.max_target_length,
            )

    def open_attention(self) -> Self:
        """Open the attention graph now instead of when a state first needs it.

        Raises:
            BundleError: the model has no attention weights.
            SessionError: the session is closed, or was opened before a fork.
        """
        self._opened_attention()
        return self

    def close(self) -> None:
        """Free the graphs, once the batches that other threads have begun are done."""
        graphs = self._graphs
        graphs.is_closed = True
        with graphs.lock:
            graphs.encoder = None
            graphs.steps.clear()

    def _verify_open(self) -> None:
        if self._graphs.is_closed:
            raise SessionError(f"The translator of bundle `{self.bundle.path}` is closed; open it again.")
        if self._process != os.getpid():
            raise SessionError(
                f"The translator of bundle `{self.bundle.path}` was opened before this process was forked from process "
                f"{self._process}; open it in every process, or start processes with multiprocessing's `spawn`."
            )

    def _session_options(self, threads: int) -> ort.SessionOptions:
        options = quiet_options(threads)
        # Otherwise, the engine keeps a memory plan for every combination of lengths it has seen.
        options.enable_mem_pattern = False
        # The engine's arena is no faster than the system allocator, and never frees memory that only loading needed.
        options.enable_cpu_mem_arena = False
        precisions = self._manifest.precision.values()
        if any(PRECISIONS[name].integer_products for name in precisions) and products_saturate():
            options.add_session_config_entry(*EXACT_PRODUCTS)
        return options

    def _opened_attention(self) -> StepGraph:
        if not self.bundle.has_attention:
            raise BundleError(
                f"Bundle `{self.bundle.path}` has no attention weights: its model, of family "
                f"`{self._manifest.family}`, does not attend to source positions."
            )
        return self._opened(contract.ATTENTION_FILE)

    def _opened(self, file: str) -> StepGraph:
        """Return a step graph, which is opened now if it was not needed before."""
        self._verify_open()
        graphs = self._graphs
        with graphs.lock:
            if file not in graphs.steps:
                self.bundle.check(file, contract.WEIGHTS_FILE)
                graphs.steps[file] = self._step_graph(file, self._open(file)[0])
            return graphs.steps[file]

    def _step_graph(self, file: str, session: ort.InferenceSession) -> StepGraph:
        if file == contract.ATTENTION_FILE:
            return StepGraph(file, session, contract.ATTENTION, None)
        return StepGraph(file, session, contract.LOGITS, self._manifest.target_vocab_size)

    def _open(self, *files: str) -> list[ort.InferenceSession]:
        """Check graphs, and open them."""
        for file in files:
            check_graph(self.bundle, file)
        return [_open(self.bundle.file(file), self.device, self._options) for file in files]


def check_device(device: str) -> str:
    """Return a device if it can be used.

    Raises:
        DeviceError: there is no such device, or the installed onnxruntime does not support it.
    """
    if device not in PROVIDERS:
        raise DeviceError(f"`device` must be one of {', '.join(PROVIDERS)}, but is `{device}`.")
    if PROVIDERS[device] not in ort.get_available_providers():
        raise DeviceError(
            f"Device `{device}` needs {PROVIDERS[device]}, which the installed onnxruntime lacks: "
            "pip uninstall onnxruntime && pip install 'edgeformer[gpu]'."
        )
    return device


def _check_version() -> None:
    """Refuse an onnxruntime that would read the weights of a graph from anywhere.

    Raises:
        DeviceError: it is too old.
    """

    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".")[:3] if part.isdigit()]

    if numbers(ENGINE_VERSION) < numbers(MIN_ENGINE_VERSION):
        raise DeviceError(
            f"onnxruntime {ENGINE_VERSION} is installed, but edgeformer needs {MIN_ENGINE_VERSION} or newer: "
            f"pip install 'onnxruntime>={MIN_ENGINE_VERSION}'."
        )


def _open(path: Path, device: str, options: ort.SessionOptions) -> ort.InferenceSession:
    try:
        providers = [(PROVIDERS[device], SETTINGS[device])]
        session = ort.InferenceSession(path, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's own exceptions share no base class
        kind, where = (BundleError, "") if device == "cpu" else (DeviceError, f" on `{device}`")
        raise kind(f"onnxruntime {ENGINE_VERSION} cannot open `{path.name}`{where}: {engine_message(error)}") from None
    if session.get_providers()[0] != PROVIDERS[device]:
        raise DeviceError(
            f"{PROVIDERS[device]} could not be started; check the driver and CUDA's libraries (pip install "
            "'edgeformer[gpu]' brings them), or use --device cpu."
        )
    return session
