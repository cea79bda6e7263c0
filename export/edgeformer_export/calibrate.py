"""Ranges of activations, observed while the fp32 graphs run on text of the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_export.to_onnx import Graphs
from edgeformer_runtime import contract
from edgeformer_runtime.batching import pad
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.manifest import SpecialTokens
from edgeformer_runtime.session import FloatArray

BATCH = 16


@dataclass(frozen=True)
class QuantizationRange:
    """Affine uint8 quantization of one activation tensor: ``real = scale * (quantized - zero_point)``."""

    scale: float
    zero_point: int


@dataclass
class Observer:
    """Smallest and largest value of a tensor; zero is always between them."""

    low: float = 0.0
    high: float = 0.0

    def observe(self, values: FloatArray) -> None:
        """Take note of one more tensor."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def range(self) -> QuantizationRange:
        """The whole observed range.

        Clipping it where that lowers the mean squared error was tried and made outputs worse: the rare large values are
        those that matter.
        """
        scale = float(np.float32(max(self.high - self.low, 1e-8) / 255))
        return QuantizationRange(scale, int(np.clip(round(-self.low / scale), 0, 255)))


def calibrate(
    graphs: Graphs,
    wanted: Mapping[str, Iterable[str]],
    table: Sequence[StateTensor],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    special: SpecialTokens,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, dict[str, QuantizationRange]]:
    """Observe activations while the decoder is fed the reference translations token by token.

    Args:
        graphs: the fp32 graphs, encoder and decoder.
        wanted: names of the float tensors to observe in each graph.
        table: the state table.
        pairs: source ids (with end token) and target ids (without special tokens).
        special: special token ids.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Range by tensor name, for each graph.
    """
    observed = {file: _Observed(model, wanted[file]) for file, model in graphs.items()}
    encoder, decoder = observed[contract.ENCODER_FILE], observed[contract.DECODER_FILE]
    order = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]))
    for start in range(0, len(order), BATCH):
        batch = [pairs[index] for index in order[start : start + BATCH]]
        source, source_length = pad([source for source, _ in batch], special.pad)
        state = encoder.run({contract.SOURCE: source, contract.SOURCE_LENGTH: source_length})
        target, _ = pad([[special.bos, *target] for _, target in batch], special.pad)
        sizes = {contract.ROWS: len(batch), contract.PAST_AXIS: 0, contract.CAPACITY_AXIS: target.shape[1]}
        for tensor in table:
            if tensor.kind == "cache":
                shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
                state[tensor.name] = np.zeros(shape, tensor.dtype)
        shared = {tensor.output_name: state[tensor.name] for tensor in table if tensor.in_place}
        for position in range(target.shape[1]):
            feeds = {tensor.input_name: state[tensor.name] for tensor in table}
            feeds |= {contract.TOKEN: target[:, position], contract.POSITION: np.array(position)}
            if shared:
                feeds[contract.CACHE_INDIRECTION] = np.zeros((len(batch), 1, target.shape[1]), np.int32)
                feeds[contract.BEAM_WIDTH] = np.ones(1, np.int32)
            outputs = decoder.run(feeds, shared)
            state |= {tensor.name: outputs[tensor.output_name] for tensor in table if tensor.kind != "constant"}
        progress(min(1.0, (start + BATCH) / len(order)))
    return {file: graph.ranges() for file, graph in observed.items()}


class _Observed:
    """A graph whose wanted tensors are made outputs."""

    def __init__(self, model: ir.Model, names: Iterable[str]) -> None:
        self._observers = {name: Observer() for name in names}
        proto = ir.to_proto(model)
        outputs = {value.name for value in proto.graph.output}
        proto.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in self._observers
            if name not in outputs
        )
        self._session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(
        self, feeds: dict[str, NDArray[np.generic]], shared: dict[str, NDArray[np.generic]] | None = None
    ) -> dict[str, NDArray[np.generic]]:
        """Run once; outputs named in ``shared`` are written to those arrays."""
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)))
        for name in self._names:
            if shared and name in shared:
                binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(shared[name]))
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        results = dict(zip(self._names, (value.numpy() for value in binding.get_outputs()), strict=True))
        for name, observer in self._observers.items():
            observer.observe(results[name])
        return results

    def ranges(self) -> dict[str, QuantizationRange]:
        return {name: observer.range() for name, observer in self._observers.items()}
