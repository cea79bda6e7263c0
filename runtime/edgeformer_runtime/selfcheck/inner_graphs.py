"""Graphs that also return inner tensors, run on given targets to locate differences in a model. Needs no onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.graphs import check_graph
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.forced_steps import columns
from edgeformer_runtime.decoding.session import IntArray
from edgeformer_runtime.engine.engine_errors import EngineErrors
from edgeformer_runtime.engine.integer_products import EXACT_PRODUCTS, products_saturate
from edgeformer_runtime.engine.onnx_session import PROVIDERS, SETTINGS
from edgeformer_runtime.limits import MAX_GRAPH_BYTES
from edgeformer_runtime.selfcheck.trace import Fingerprints, Stage, Trace, fingerprints, padded

Names = Mapping[str, Sequence[str]]
"""Names of inner tensors by graph file, in order of computation."""
Values = dict[str, ort.OrtValue]
"""Tensors by name."""


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
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.load_model_format", "ONNX")  # otherwise guessed from the content
        if products_saturate():
            options.add_session_config_entry(*EXACT_PRODUCTS)
        if isinstance(weights, Path):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
        else:  # kept alive, since the engine reads them in place
            self._weights = [ort.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
            options.add_external_initializers(list(weights), self._weights)
        providers = [(PROVIDERS[device], SETTINGS[device])]
        with EngineErrors(file):
            self._session = ort.InferenceSession(with_outputs(graph, names), options, providers=providers)
        self.outputs = [output.name for output in self._session.get_outputs()]
        """Names of all tensors that a run returns."""

    def run(
        self, inputs: Mapping[str, NDArray[Any] | ort.OrtValue], in_place: Mapping[str, ort.OrtValue] | None = None
    ) -> Values:
        """Run the graph once.

        Args:
            inputs: tensors by the names of the graph's inputs.
            in_place: buffers that outputs are written to, by output name.

        Returns:
            Outputs and inner tensors.

        Raises:
            ModelError: the engine fails.
        """
        binding, buffers = self._session.io_binding(), in_place or {}
        values = {  # kept alive until the run ends, since a binding holds no references
            name: value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)
            for name, value in inputs.items()
        }
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            if name in buffers:
                binding.bind_ortvalue_output(name, buffers[name])
            else:
                binding.bind_output(name)
        with EngineErrors(self.file):
            self._session.run_with_iobinding(binding)
            return dict(zip(self.outputs, binding.get_outputs(), strict=True))


def run_encoder(encoder: InnerGraph, source: IntArray, source_length: IntArray) -> Values:
    """Run an encoder on sources ``(N, S)`` with true lengths ``(N,)``."""
    return encoder.run({contract.SOURCE: source, contract.SOURCE_LENGTH: source_length})


def run_decoder(
    decoder: InnerGraph, encoded: Mapping[str, ort.OrtValue], table: Sequence[StateTensor], target: IntArray
) -> Iterator[Values]:
    """Feed targets to a decoder token by token, with one beam per sentence.

    Args:
        decoder: the decoder.
        encoded: outputs of the encoder; not modified.
        table: the state table.
        target: tokens to feed, start token first, ``(N, T)``, int64.

    Yields:
        The decoder's outputs at each position.

    Raises:
        ModelError: the engine fails.
    """
    rows, capacity = target.shape
    sizes = {contract.ROWS: rows, contract.PAST_AXIS: 0, contract.CAPACITY_AXIS: capacity}
    state = dict(encoded)
    for tensor in table:
        if tensor.kind == "cache":
            empty = np.zeros(tensor.shape(sizes), tensor.dtype)
            state[tensor.name] = ort.OrtValue.ortvalue_from_numpy(empty, decoder.device)
    in_place = {tensor.output_name: state[tensor.name] for tensor in table if tensor.in_place}
    inputs: dict[str, NDArray[Any] | ort.OrtValue] = {tensor.input_name: state[tensor.name] for tensor in table}
    if in_place:
        inputs[contract.CACHE_INDIRECTION] = np.zeros((rows, 1, capacity), np.int32)
        inputs[contract.BEAM_WIDTH] = np.ones(1, np.int32)
    replaced = [tensor for tensor in table if tensor.kind != "constant" and not tensor.in_place]
    for position, token in enumerate(columns(target)):
        outputs = decoder.run({**inputs, contract.TOKEN: token, contract.POSITION: np.array(position)}, in_place)
        inputs |= {tensor.input_name: outputs[tensor.output_name] for tensor in replaced}
        yield outputs


class InnerGraphs:
    """Encoder and decoder that also return inner tensors.

    Args:
        graphs: the two graphs by file name.
        table: the state table.
    """

    def __init__(self, graphs: Mapping[str, InnerGraph], table: Sequence[StateTensor]) -> None:
        self._encoder, self._decoder, self._table = graphs[contract.ENCODER_FILE], graphs[contract.DECODER_FILE], table

    @classmethod
    def of_bundle(cls, bundle: Bundle, names: Names, device: str = "cpu") -> InnerGraphs:
        """Open the graphs of a bundle.

        Args:
            bundle: the bundle.
            names: inner tensors to return.
            device: ``cpu`` or ``cuda``.

        Raises:
            BundleError: a graph is damaged.
            ModelError: the engine cannot open a graph, or a graph lacks a tensor.
        """
        graphs = {}
        for file in (contract.ENCODER_FILE, contract.DECODER_FILE):
            check_graph(bundle, file)
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
        encoded = run_encoder(self._encoder, source, source_length)
        yield self._shown(self._encoder, encoded)
        for outputs in run_decoder(self._decoder, encoded, self._table, np.array([target])):
            yield self._shown(self._decoder, outputs)

    def _shown(self, graph: InnerGraph, outputs: Values) -> Stage:
        hidden = {*graph.names, *(tensor.output_name for tensor in self._table if tensor.kind == "cache")}
        names = [*graph.names, *(name for name in graph.outputs if name not in hidden)]
        with EngineErrors(graph.file):  # raised for values that are not arrays, such as sequences
            return {name: outputs[name].numpy() for name in names}


def inner_fingerprints(graphs: InnerGraphs, manifest: Manifest, trace: Trace) -> Fingerprints:
    """Fingerprints of the tensors that graphs return for a trace, inner ones among them.

    Args:
        graphs: the graphs.
        manifest: the manifest of their bundle.
        trace: source and target to feed.

    Raises:
        ModelError: the engine fails.
    """
    source, length = padded(trace.source, manifest.special.pad, manifest.max_source_length)
    return fingerprints(graphs.stages(source, length, trace.target), len(trace.source), source.shape[1])


def with_outputs(graph: bytes, names: Sequence[str]) -> bytes:
    """Add outputs to a serialized model.

    Concatenated protobuf messages are merged. A second ``graph`` (field 7 of a model) that contains only outputs (field
    12 of a graph), each with only a name (field 1), therefore adds these outputs to the first graph.
    """
    outputs = b"".join(_field(12, _field(1, name.encode())) for name in names)
    return graph + _field(7, outputs) if outputs else graph


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])
