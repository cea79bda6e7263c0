"""The decode loop's session on ONNX Runtime: tensors stay on the device, and only tokens and logits cross over."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from threading import Lock

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Manifest, SpecialTokens
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.session import FloatArray, IntArray
from edgeformer_runtime.engine.huge_pages import huge_pages
from edgeformer_runtime.errors import BundleError, DeviceError, ModelError
from edgeformer_runtime.precision import PRECISIONS

try:
    import onnxruntime as ort

    from edgeformer_runtime.engine.device_state import DeviceRows, DeviceState
    from edgeformer_runtime.engine.integer_products import EXACT_PRODUCTS, products_saturate
    from edgeformer_runtime.engine.onnx_best_tokens import OnnxBestTokens
    from edgeformer_runtime.engine.onnx_state import OnnxState
except ModuleNotFoundError:
    raise DeviceError(
        "onnxruntime is not installed: pip install 'edgeformer[cpu]', or 'edgeformer[gpu]' for CUDA."
    ) from None

ENGINE_VERSION: str = ort.__version__
"""Version of the installed onnxruntime."""
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""Device names and their execution providers."""
SETTINGS: dict[str, dict[str, str]] = {
    "cpu": {},
    "cuda": {"use_tf32": "0", "enable_skip_layer_norm_strict_mode": "1"},
}
"""Settings of the providers. By themselves, CUDA's products of float32 take ten bits of each number (TF32), and sums
within norms of float16 are float16 in some versions."""

_HOST_OUTPUT = {contract.DECODER_FILE: contract.LOGITS, contract.ATTENTION_FILE: contract.ATTENTION}
"""The output of each graph that is read by the host; all others are state."""


class OnnxSession:
    """A bundle's two graphs, opened on one device. Safe to use from many threads."""

    def __init__(self, bundle: Bundle, *, device: str = "cpu", threads: int = 0) -> None:
        """Open the graphs.

        Args:
            bundle: a checked bundle.
            device: ``cpu`` or ``cuda``.
            threads: CPU threads of one operator; 0 takes all that this process may use.

        Raises:
            DeviceError: the provider is unknown, not in the installed onnxruntime, or does not suit the bundle.
            BundleError: onnxruntime is too old or refuses a graph, or its inputs and outputs differ from the manifest.
        """
        self._manifest = bundle.manifest
        self._table = bundle.manifest.state
        self._device = _checked_device(device)
        if device == "cuda":
            _check_cuda(bundle.manifest)
        _check_version(bundle.manifest.min_onnxruntime)
        options = self._session_options(threads)
        self._bundle, self._options = bundle, options
        with huge_pages() if device == "cpu" else nullcontext():
            # The larger one first: for a moment, the engine holds three copies of the output projection.
            self._decoder, self._encoder = self._open(contract.DECODER_FILE, contract.ENCODER_FILE)
        self._new_state: Callable[..., OnnxState] = OnnxState
        if device != "cpu":
            dtypes = {tensor.dtype for tensor in self._table}
            rows = DeviceRows(dtypes, device, options, [(PROVIDERS[device], SETTINGS[device])])
            self._new_state = partial(DeviceState, rows=rows)
        self.best_tokens = OnnxBestTokens(options)
        self._attention: ort.InferenceSession | None = None
        self._lock = Lock()

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return self._device

    @property
    def rows_in_pairs(self) -> bool:
        """True for weights in blocks. They are for one row at a time: batches gain less with them than with int8."""
        return max(PRECISIONS[name].row_multiple for name in self._manifest.precision.values()) > 1

    @property
    def special(self) -> SpecialTokens:
        """Token ids with a meaning."""
        return self._manifest.special

    @property
    def max_source_length(self) -> int:
        """Longest source in tokens, end token included."""
        return self._manifest.max_source_length

    @property
    def max_target_length(self) -> int:
        """Largest number of steps."""
        return self._manifest.max_target_length

    def start(self, source: IntArray, source_length: IntArray) -> OnnxState:
        """Run the encoder; see :meth:`~edgeformer_runtime.decoding.session.StepSession.start`."""
        binding = self._encoder.io_binding()
        binding.bind_cpu_input(contract.SOURCE, source)
        binding.bind_cpu_input(contract.SOURCE_LENGTH, source_length)
        emitted = [tensor.name for tensor in self._table if tensor.from_encoder]
        for name in emitted:
            binding.bind_output(name, self._device)
        with engine_errors(contract.ENCODER_FILE):
            self._encoder.run_with_iobinding(binding)
            return self._new_state(
                dict(zip(emitted, binding.get_outputs(), strict=True)),
                self._table,
                self._device,
                sentences=len(source),
                max_length=self.max_target_length,
            )

    def step(self, token: IntArray, position: int, state: OnnxState) -> tuple[FloatArray, OnnxState]:
        """Run the decoder once; see :meth:`~edgeformer_runtime.decoding.session.StepSession.step`."""
        with engine_errors(contract.DECODER_FILE):
            logits = state.run(self._decoder, contract.LOGITS, self._manifest.target_vocab_size, token, position)
        return logits, state

    def attend(self, token: IntArray, position: int, state: OnnxState) -> tuple[FloatArray, OnnxState]:
        """Run the attention graph once, which is opened when it is first needed; see
        :meth:`~edgeformer_runtime.decoding.session.AttentiveSession.attend`."""
        graph = self._opened_attention()
        with engine_errors(contract.ATTENTION_FILE):
            weights = state.run(graph, contract.ATTENTION, None, token, position)
        return weights, state

    def open_attention(self) -> None:
        """Open the attention graph now, and not at the first :meth:`attend`.

        Raises:
            BundleError: the model has no attention weights.
        """
        self._opened_attention()

    def _session_options(self, threads: int) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads or available_cpus()
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # A plan of memory is kept for each combination of lengths that was ever seen.
        options.enable_mem_pattern = False
        # The engine's own store of memory is as fast as the system's, and keeps for ever what only loading needed.
        options.enable_cpu_mem_arena = False
        # Idle threads sleep: a device has other work to do between two operators.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        precisions = self._manifest.precision.values()
        if any(PRECISIONS[name].integer_products for name in precisions) and products_saturate():
            options.add_session_config_entry(*EXACT_PRODUCTS)
        return options

    def _opened_attention(self) -> ort.InferenceSession:
        with self._lock:
            if self._attention is None:
                self._attention = self._checked_attention()
            return self._attention

    def _checked_attention(self) -> ort.InferenceSession:
        if not self._bundle.has_attention:
            raise BundleError(
                f"Bundle `{self._bundle.path}` has no attention weights: its model, of family "
                f"`{self._manifest.family}`, does not attend to source positions, or an earlier version exported it."
            )
        self._bundle.check(contract.ATTENTION_FILE, contract.WEIGHTS_FILE)
        return self._open(contract.ATTENTION_FILE)[0]

    def _open(self, *files: str) -> list[ort.InferenceSession]:
        """Open graphs, and compare all of them with the manifest."""
        graphs = [_open(self._bundle.file(file), self._device, self._options) for file in files]
        problems = [
            problem
            for file, graph in zip(files, graphs, strict=True)
            for problem in _name_problems(self._table, file, graph)
        ]
        if problems:
            raise BundleError(f"Bundle `{self._bundle.path}`: graphs and manifest differ: " + "; ".join(problems) + ".")
        return graphs


def available_cpus() -> int:
    """CPUs this process may use: its affinity, and the cgroup's quota rounded up."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            count = min(count, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass
    return count


def _checked_device(device: str) -> str:
    if device not in PROVIDERS:
        raise DeviceError(f"`device` must be one of {', '.join(PROVIDERS)}, but is `{device}`.")
    if PROVIDERS[device] not in ort.get_available_providers():
        raise DeviceError(
            f"Device `{device}` needs {PROVIDERS[device]}, which the installed onnxruntime lacks: "
            "pip uninstall onnxruntime && pip install 'edgeformer[gpu]'."
        )
    return device


def _check_version(minimum: str) -> None:
    def numbers(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split(".")[:2])

    if numbers(ENGINE_VERSION) < numbers(minimum):
        raise BundleError(f"The bundle needs onnxruntime {minimum} or newer, but {ENGINE_VERSION} is installed.")


def _check_cuda(manifest: Manifest) -> None:
    """Refuse what CUDA has no kernels for, and find its libraries where pip has put them."""
    if unsupported := sorted(name for name in manifest.precision.values() if "cuda" not in PRECISIONS[name].devices):
        supported = " or ".join(sorted(name for name, row in PRECISIONS.items() if "cuda" in row.devices))
        raise DeviceError(
            f"{unsupported[0]} graphs run on the CPU only, so `cuda` would copy every tensor back and forth; export "
            f"the model with --precision {supported}."
        )
    widths = {tensor.axes[-1] for tensor in manifest.state if tensor.in_place} - {*contract.CUDA_HEAD_WIDTHS}
    if widths:
        wanted = ", ".join(map(str, contract.CUDA_HEAD_WIDTHS))
        raise DeviceError(
            f"On `cuda`, caches are written in place for heads of width {wanted} only, but this model's have width "
            f"{', '.join(map(str, sorted(widths, key=str)))}; export it with --precision fp16, which has other caches "
            "for other widths, or with --target portable."
        )
    if hasattr(ort, "preload_dlls"):
        with redirect_stdout(sys.stderr):  # where it prints what it lacks
            ort.preload_dlls()


def _open(path: Path, device: str, options: ort.SessionOptions) -> ort.InferenceSession:
    try:
        with nullcontext() if device == "cpu" else redirect_stdout(sys.stderr):
            session = ort.InferenceSession(path, options, providers=[(PROVIDERS[device], SETTINGS[device])])
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise BundleError(f"onnxruntime {ENGINE_VERSION} cannot open `{path.name}`: {error}") from None
    if session.get_providers()[0] != PROVIDERS[device]:
        raise DeviceError(
            f"{PROVIDERS[device]} could not be started; check the driver and CUDA's libraries (pip install "
            "'onnxruntime-gpu[cuda,cudnn]' brings them), or use --device cpu."
        )
    return session


@contextmanager
def engine_errors(file: str) -> Iterator[None]:
    """Turn what the engine raises into :class:`ModelError`; ``file`` is the graph."""
    try:
        yield
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise ModelError(f"onnxruntime {ENGINE_VERSION} failed in `{file}`: {error}") from None


def _name_problems(table: tuple[StateTensor, ...], file: str, graph: ort.InferenceSession) -> list[str]:
    """Where a graph's inputs and outputs differ from the manifest's state table."""
    if file == contract.ENCODER_FILE:
        inputs = {contract.SOURCE, contract.SOURCE_LENGTH}
        outputs = {tensor.name for tensor in table if tensor.from_encoder}
    else:
        inputs = set(contract.decoder_inputs(table))
        outputs = {_HOST_OUTPUT[file], *(tensor.output_name for tensor in table if tensor.kind != "constant")}
    problems = []
    for what, expected, arguments in (
        ("inputs", inputs, graph.get_inputs()),
        ("outputs", outputs, graph.get_outputs()),
    ):
        found = {argument.name for argument in arguments}
        if missing := sorted(expected - found):
            problems.append(f"{what} of `{file}` lack {', '.join(missing)}")
        if surplus := sorted(found - expected):
            problems.append(f"{what} of `{file}` have unknown {', '.join(surplus)}")
    return problems
