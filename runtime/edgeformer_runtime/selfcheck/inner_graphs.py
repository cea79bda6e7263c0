"""A model's graphs with inner tensors made outputs, to see where a result arises. Needs no onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.session import IntArray
from edgeformer_runtime.engine.integer_products import EXACT_PRODUCTS, products_saturate
from edgeformer_runtime.engine.onnx_session import PROVIDERS, SETTINGS, engine_errors
from edgeformer_runtime.selfcheck.trace import Stage

Names = Mapping[str, Sequence[str]]
"""Names of inner tensors by graph file, in the order in which they are computed."""

_GRAPHS = (contract.ENCODER_FILE, contract.DECODER_FILE)


class InnerGraphs:
    """Encoder and decoder for one sentence and one beam.

    Args:
        graphs: the two graphs, serialised, by their file names.
        names: tensors to show.
        table: the state table.
        folder: where the graphs' file of weights is, if they have one.
        device: ``cpu`` or ``cuda``.

    Raises:
        ModelError: the engine refuses a graph, or a tensor is not in it.
    """

    def __init__(
        self,
        graphs: Mapping[str, bytes],
        names: Names,
        table: Sequence[StateTensor],
        *,
        folder: Path | None = None,
        device: str = "cpu",
    ) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if products_saturate():
            options.add_session_config_entry(*EXACT_PRODUCTS)
        if folder is not None:
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self._table, self._device = table, device
        self._names = {file: tuple(names.get(file, ())) for file in _GRAPHS}
        self._sessions = {}
        for file in _GRAPHS:
            with engine_errors(file):
                model = with_outputs(graphs[file], self._names[file])
                self._sessions[file] = ort.InferenceSession(
                    model, options, providers=[(PROVIDERS[device], SETTINGS[device])]
                )

    @classmethod
    def of_bundle(cls, bundle: Bundle, names: Names, device: str = "cpu") -> InnerGraphs:
        """Those of a bundle; arguments and errors as for the class."""
        graphs = {file: bundle.file(file).read_bytes() for file in _GRAPHS}
        return cls(graphs, names, bundle.manifest.state, folder=bundle.path, device=device)

    def stages(self, source: IntArray, source_length: IntArray, target: Sequence[int]) -> Iterator[Stage]:
        """Run the encoder, then one step for each token; each stage has the inner tensors, then the graph's outputs
        but for caches.

        Args:
            source: ``(1, S)``, int64.
            source_length: ``(1,)``, int64.
            target: tokens to feed, the start token first.

        Raises:
            ModelError: the engine fails.
        """
        given = {contract.SOURCE: source, contract.SOURCE_LENGTH: source_length}
        shown, state = self._run(contract.ENCODER_FILE, given, {})
        yield shown
        sizes = {contract.ROWS: 1, contract.PAST_AXIS: 0, contract.CAPACITY_AXIS: len(target)}
        for tensor in self._table:
            if tensor.kind == "cache":
                shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
                state[tensor.name] = self._value(np.zeros(shape, tensor.dtype))
        in_place = {tensor.output_name: state[tensor.name] for tensor in self._table if tensor.in_place}
        given = {tensor.input_name: state[tensor.name] for tensor in self._table}
        if in_place:
            given[contract.CACHE_INDIRECTION] = np.zeros((1, 1, len(target)), np.int32)
            given[contract.BEAM_WIDTH] = np.ones(1, np.int32)
        for position, token in enumerate(target):
            given |= {contract.TOKEN: np.array([token]), contract.POSITION: np.array(position)}
            shown, outputs = self._run(contract.DECODER_FILE, given, in_place)
            yield shown
            given |= {
                tensor.input_name: outputs[tensor.output_name]
                for tensor in self._table
                if tensor.kind != "constant" and not tensor.in_place
            }

    def _run(
        self, file: str, given: Mapping[str, NDArray[Any] | ort.OrtValue], in_place: Mapping[str, ort.OrtValue]
    ) -> tuple[Stage, dict[str, ort.OrtValue]]:
        """What is to be shown of one run, and all outputs."""
        session = self._sessions[file]
        binding = session.io_binding()
        values = {  # a binding does not keep the arrays
            name: one if isinstance(one, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(one)
            for name, one in given.items()
        }
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        names = [output.name for output in session.get_outputs()]
        for name in names:
            if name in in_place:
                binding.bind_ortvalue_output(name, in_place[name])
            else:
                binding.bind_output(name)
        inner, caches = self._names[file], {tensor.output_name for tensor in self._table if tensor.kind == "cache"}
        with engine_errors(file):
            session.run_with_iobinding(binding)
            outputs = dict(zip(names, binding.get_outputs(), strict=True))
            wanted = [*inner, *(name for name in names if name not in {*inner, *caches})]
            return {name: outputs[name].numpy() for name in wanted}, outputs

    def _value(self, array: NDArray[Any]) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_numpy(array, self._device)


def with_outputs(graph: bytes, names: Sequence[str]) -> bytes:
    """A serialised model with more outputs.

    The parts of a message in ONNX's format add up: a second ``graph`` (field 7 of a model) that has nothing but outputs
    (field 12 of a graph), of which nothing but the name (field 1) is known, adds these to the first.
    """
    outputs = b"".join(_field(12, _field(1, name.encode())) for name in names)
    return graph + _field(7, outputs) if outputs else graph


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])
