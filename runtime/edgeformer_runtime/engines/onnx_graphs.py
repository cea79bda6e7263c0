"""Opened graphs: options, errors, and inputs and outputs, which are bound so that no step copies them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.engines.graphs import INTEGER_PRODUCT
from edgeformer_runtime.engines.state_tensors import StateTensors
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.search.session import FloatArray

_MAX_MESSAGE = 1000


def engine_message(error: Exception) -> str:
    """The message of the engine's exception, which may quote a graph, as one line without control characters."""
    return shortened(error, _MAX_MESSAGE)


@contextmanager
def engine_errors(file: str) -> Iterator[None]:
    """Raise the engine's exceptions in the ``with`` block as :class:`ModelError`.

    Args:
        file: the graph that the block opens or runs.
    """
    try:
        yield
    except Exception as error:  # onnxruntime's own exceptions share no base class
        raise ModelError(f"onnxruntime {ort.__version__} failed in `{file}`: {engine_message(error)}") from None


EXACT_PRODUCTS = ("session.x64quantprecision", "1")
"""onnxruntime session entry that converts int8 weights to uint8 when a graph is opened, which selects kernels that are
exact on every x86 processor. Processors with VNNI instructions are exact without this entry and slower with it, so it
is set only if :func:`products_saturate` returns true."""


@cache
def products_saturate() -> bool:
    """Whether sums of products of uint8 activations and int8 weights saturate on this processor.

    x86 processors with AVX2 or AVX-512 but without VNNI add two such products in 16 bits, which ``2 * 255 * 127``
    overflows. Since the engine chooses the kernel, this function tests a product of the largest values. Takes about a
    millisecond, once per process.
    """
    session = ort.InferenceSession(INTEGER_PRODUCT, quiet_options(1), providers=["CPUExecutionProvider"])
    a, b = np.full((2, 64), 255, np.uint8), np.full((64, 32), 127, np.int8)
    (product,) = session.run(None, {"a": a, "b": b})
    return not np.array_equal(product, a.astype(np.int32) @ b.astype(np.int32))


def quiet_options(threads: int) -> ort.SessionOptions:
    """Options of a session that logs only errors, and whose idle threads sleep: the device has other work to do
    between operators."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


@dataclass(frozen=True)
class StepGraph:
    """An opened graph that takes the decoder's inputs and advances the state by one token."""

    file: str
    """File name of the graph, for error messages."""
    session: ort.InferenceSession
    """The engine's session of the graph."""
    output: str
    """Name of the output that the host reads; all others are state."""
    width: int | None
    """Size of the last axis of :attr:`output`; ``None`` for the length of the longest source."""

    @cached_property
    def inputs(self) -> frozenset[str]:
        """Names of the inputs."""
        return frozenset(argument.name for argument in self.session.get_inputs())


class Binding:
    """Binds a graph's inputs and outputs to buffers. Valid until rows, sentences or capacity change.

    Args:
        graph: the graph.
        tensors: the state's tensors.
        host: inputs that the host updates between steps, by name.
        resent: names of the host inputs that must be bound again in every step.
        buffer: buffer for the output that the host reads, ``(R, width)``.
    """

    def __init__(
        self,
        graph: StepGraph,
        tensors: StateTensors,
        host: Mapping[str, ort.OrtValue],
        resent: Collection[str],
        buffer: NDArray[np.float32],
    ) -> None:
        self._graph, self._tensors, self._buffer = graph, tensors, buffer
        self._resent = [(name, host[name]) for name in resent]
        self._names = [argument.name for argument in graph.session.get_outputs()]
        self._fresh: list[tuple[str, str]] = []
        """Outputs that get a new buffer in each run, and where."""
        self._binding = binding = graph.session.io_binding()
        for name, value in host.items():
            binding.bind_ortvalue_input(name, value)
        for tensor in tensors.table:
            value = tensors.values[tensor.name]
            if (tensor.kind == "constant" or tensor.in_place) and tensor.input_name in graph.inputs:
                binding.bind_ortvalue_input(tensor.input_name, value)
        in_place = {tensor.output_name: tensor.name for tensor in tensors.table if tensor.in_place}
        for name in self._names:  # in the graph's order, the order in which a binding returns outputs
            if name in in_place:
                binding.bind_ortvalue_output(name, tensors.values[in_place[name]])
            elif name == graph.output:
                binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(buffer))
            else:
                self._fresh.append((name, tensors.device))
                binding.bind_output(*self._fresh[-1])

    @property
    def outputs(self) -> dict[str, ort.OrtValue]:
        """All outputs of the last run by name."""
        return dict(zip(self._names, self._binding.get_outputs(), strict=True))

    def run(self) -> FloatArray:
        """Run the graph once and replace the old state with its outputs.

        Returns:
            The output that the host reads, ``(R, width)``: the buffer.
        """
        binding, tensors = self._binding, self._tensors
        for name, value in self._resent:
            binding.bind_ortvalue_input(name, value)
        for tensor in tensors.replaced:
            binding.bind_ortvalue_input(tensor.input_name, tensors.values[tensor.name])
        for name, device in self._fresh:
            binding.bind_output(name, device)
        self._graph.session.run_with_iobinding(binding)
        if tensors.replaced:
            values = self.outputs
            for tensor in tensors.replaced:
                tensors.replace(tensor, values[tensor.output_name])
        return self._buffer
