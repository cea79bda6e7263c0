"""Graphs that also return inner tensors, run on given targets: to calibrate them, and to locate differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.engines.cuda import DeviceRows, DeviceTensors
from edgeformer_runtime.engines.onnx import PROVIDERS, SETTINGS
from edgeformer_runtime.engines.onnx_graphs import (
    EXACT_PRODUCTS,
    StepGraph,
    engine_errors,
    products_saturate,
    quiet_options,
)
from edgeformer_runtime.engines.onnx_state import OnnxState
from edgeformer_runtime.engines.state_tensors import StateTensors
from edgeformer_runtime.limits import MAX_GRAPH_BYTES
from edgeformer_runtime.search.forced_steps import forced_steps
from edgeformer_runtime.search.session import IntArray

Names = Mapping[str, Sequence[str]]
"""Names of inner tensors by graph file, in order of computation."""
Values = dict[str, ort.OrtValue]
"""Tensors by name."""
Stage = Mapping[str, NDArray[Any]]
"""Arrays by name, in order of computation: of the encoder, or of one decoder step."""

PADDING = 3
"""Padding tokens appended to the source; without them, an ineffective mask would go unnoticed."""


class InnerGraph:
    """One graph that also returns inner tensors.

    Args:
        file: the graph's file name, for errors.
        graph: the serialized graph.
        names: inner tensors to return; they must not already be outputs.
        weights: where the graph's weights are: the folder of their file, or arrays by the names of initializers that
            are external data; C-contiguous, and not copied.
        device: ``cpu`` or ``cuda``.
        threads: CPU threads per operator; 0 lets the engine choose.

    Raises:
        ModelError: the engine cannot open the graph, or the graph lacks a tensor.
    """

    def __init__(
        self,
        file: str,
        graph: bytes,
        names: Sequence[str] = (),
        *,
        weights: Path | Mapping[str, NDArray[Any]],
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self.file, self.names, self.device = file, tuple(names), device
        options = quiet_options(threads)
        options.add_session_config_entry("session.load_model_format", "ONNX")  # otherwise guessed from the content
        if products_saturate():
            options.add_session_config_entry(*EXACT_PRODUCTS)
        if isinstance(weights, Path):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
        else:  # kept alive, since the engine reads them in place
            self._weights = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), self._weights)
        providers = [(PROVIDERS[device], SETTINGS[device])]
        with engine_errors(file):
            content = _with_outputs(graph, names)
            self.session = ort.InferenceSession(content, options, providers=providers, enable_fallback=0)
        self.outputs = [output.name for output in self.session.get_outputs()]
        """Names of all tensors that a run returns."""

    def encode(self, source: IntArray, source_length: IntArray) -> Values:
        """Run an encoder on sources ``(N, S)`` with true lengths ``(N,)``; returns outputs and inner tensors.

        Raises:
            ModelError: the engine fails.
        """
        binding = self.session.io_binding()
        binding.bind_cpu_input(contract.SOURCE, source)
        binding.bind_cpu_input(contract.SOURCE_LENGTH, source_length)
        for name in self.outputs:
            binding.bind_output(name, self.device)
        with engine_errors(self.file):
            self.session.run_with_iobinding(binding)
            return dict(zip(self.outputs, binding.get_outputs(), strict=True))

    def decode(self, encoded: Values, table: Sequence[StateTensor], target: IntArray) -> Iterator[Values]:
        """Feed targets to a decoder token by token, with one beam per sentence.

        Args:
            encoded: outputs of the encoder; not modified.
            table: the state table.
            target: tokens to feed, start token first, ``(N, T)``, int64.

        Yields:
            The decoder's outputs and inner tensors at each position.

        Raises:
            ModelError: the engine fails.
        """
        make: Callable[..., StateTensors] = StateTensors
        if self.device != "cpu":  # where no rows are selected
            make = partial(DeviceTensors, rows=DeviceRows((), self.device, ort.SessionOptions(), []))
        rows, steps = target.shape
        tensors = make(encoded, tuple(table), self.device, sentences=rows, max_length=steps)
        logits = next(output for output in self.session.get_outputs() if output.name == contract.LOGITS)
        graph = StepGraph(self.file, self.session, contract.LOGITS, logits.shape[1])
        state = OnnxState(tensors, graph, lambda: graph, 0)
        for _ in forced_steps(state, target):
            yield state.outputs


class InnerGraphs:
    """Encoder and decoder that also return inner tensors."""

    def __init__(self, graphs: Mapping[str, InnerGraph], table: Sequence[StateTensor]) -> None:
        self._encoder, self._decoder, self._table = graphs[contract.ENCODER_FILE], graphs[contract.DECODER_FILE], table

    @classmethod
    def of_bundle(cls, bundle: Bundle, names: Names, device: str = "cpu") -> InnerGraphs:
        """Open the graphs of a bundle.

        Raises:
            BundleError: a graph has changed since the bundle was opened.
            ModelError: the engine cannot open a graph, or a graph lacks a tensor.
        """
        graphs = {}
        for file in (contract.ENCODER_FILE, contract.DECODER_FILE):
            content = bundle.read(file, MAX_GRAPH_BYTES)
            graphs[file] = InnerGraph(file, content, names.get(file, ()), weights=bundle.path, device=device)
        return cls(graphs, bundle.manifest.state)

    def stages(self, source: IntArray, source_length: IntArray, target: Sequence[int]) -> Iterator[Stage]:
        """Run the encoder, then one decoder step per token.

        Args:
            source: ``(1, S)``, int64.
            source_length: ``(1,)``, int64.
            target: tokens to feed, start token first.

        Yields:
            The inner tensors of each run, followed by the graph's outputs except caches.

        Raises:
            ModelError: the engine fails.
        """
        encoded = self._encoder.encode(source, source_length)
        yield self._shown(self._encoder, encoded)
        for outputs in self._decoder.decode(encoded, self._table, np.array([target])):
            yield self._shown(self._decoder, outputs)

    def _shown(self, graph: InnerGraph, outputs: Values) -> Stage:
        hidden = {*graph.names, *(tensor.output_name for tensor in self._table if tensor.kind == "cache")}
        names = [*graph.names, *(name for name in graph.outputs if name not in hidden)]
        with engine_errors(graph.file):  # raised for values that are not arrays, such as sequences
            return {name: outputs[name].numpy() for name in names}


def padded(source: Sequence[int], pad: int, max_length: int) -> tuple[IntArray, IntArray]:
    """Pad a source by :data:`PADDING` tokens, up to the model's maximum length.

    Returns:
        Ids ``(1, S)`` and true length ``(1,)``.
    """
    padding = max(0, min(PADDING, max_length - len(source)))
    return np.array([[*source, *[pad] * padding]]), np.array([len(source)])


def true_part(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    """Remove padding from an array: every axis of size ``width`` is cut to ``length``.

    A mask ``(1, S)`` is returned unchanged, since its values on padding matter.
    """
    if array.shape == (1, width):
        return array
    return array[tuple(slice(length) if size == width else slice(None) for size in array.shape)]


def _with_outputs(graph: bytes, names: Sequence[str]) -> bytes:
    """Add outputs, which need no type, to a serialized model."""
    model = onnx.ModelProto.FromString(graph)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    content: bytes = model.SerializeToString()
    return content
