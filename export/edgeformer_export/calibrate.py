"""Ranges of activations, observed while the fp32 graphs run on text of the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

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

SAMPLES_PER_TENSOR = 32_768
BATCH = 16
CLIPPING = [step / 16 for step in range(16, 3, -1)]
"""Fractions of an end of the range that are tried."""


@dataclass(frozen=True)
class QuantizationRange:
    """Affine uint8 quantization of one activation tensor: ``real = scale * (quantized - zero_point)``."""

    scale: float
    zero_point: int


@dataclass
class Observer:
    """Smallest and largest value of a tensor, and an even sample of its values for choosing where to clip."""

    low: float = 0.0
    high: float = 0.0
    samples: list[FloatArray] = field(default_factory=list)
    sampled: int = 0

    def observe(self, values: NDArray[np.float32], random: np.random.Generator) -> None:
        """Take note of one more tensor."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        if self.sampled < SAMPLES_PER_TENSOR:
            flat = values.ravel()
            kept = flat if flat.size <= 2048 else random.choice(flat, 2048, replace=False)
            self.samples.append(kept.copy())
            self.sampled += kept.size

    def best_range(self) -> QuantizationRange:
        """The clipping of the observed range that gives a small mean squared error over the sample.

        First the upper, then the lower end is drawn in, as far as that lowers the error.
        """
        values = np.concatenate(self.samples)
        low, high = self.low, self.high
        high = min((high * fraction for fraction in CLIPPING), key=lambda end: _error(values, _range(low, end)))
        low = min((low * fraction for fraction in CLIPPING), key=lambda end: _error(values, _range(end, high)))
        return _range(low, high)


def _range(low: float, high: float) -> QuantizationRange:
    scale = float(np.float32(max(high - low, 1e-8) / 255))
    return QuantizationRange(scale, int(np.clip(round(-low / scale), 0, 255)))


def _error(values: FloatArray, quantization: QuantizationRange) -> float:
    return float(np.square(_round_trip(values, quantization) - values).mean())


def _round_trip(values: FloatArray, quantization: QuantizationRange) -> FloatArray:
    quantized = np.clip(np.rint(values / quantization.scale) + quantization.zero_point, 0, 255)
    restored: FloatArray = ((quantized - quantization.zero_point) * quantization.scale).astype(np.float32)
    return restored


def calibrate(
    graphs: Graphs,
    wanted: tuple[Iterable[str], Iterable[str]],
    table: Sequence[StateTensor],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    special: SpecialTokens,
    progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[dict[str, QuantizationRange], dict[str, QuantizationRange]]:
    """Observe activations while the decoder is fed the reference translations token by token.

    Args:
        graphs: the fp32 graphs.
        wanted: names of the float tensors to observe, in the encoder and in the decoder.
        table: the state table.
        pairs: source ids (with end token) and target ids (without special tokens).
        special: special token ids.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Range by tensor name, for the encoder and for the decoder.
    """
    encoder, decoder = (
        _Observed(model, names) for model, names in zip((graphs.encoder, graphs.decoder), wanted, strict=True)
    )
    order = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]))
    for start in range(0, len(order), BATCH):
        batch = [pairs[index] for index in order[start : start + BATCH]]
        source, source_length = pad([source for source, _ in batch], special.pad)
        state = encoder.run({contract.SOURCE: source, contract.SOURCE_LENGTH: source_length})
        for tensor in table:
            if tensor.kind == "cache":
                shape = [len(batch), *(0 if isinstance(axis, str) else axis for axis in tensor.axes[1:])]
                state[tensor.name] = np.empty(shape, tensor.dtype)
        target, _ = pad([[special.bos, *target] for _, target in batch], special.pad)
        for position in range(target.shape[1]):
            feeds = {tensor.input_name: state[tensor.name] for tensor in table}
            feeds |= {contract.TOKEN: target[:, position], contract.POSITION: np.array(position)}
            outputs = decoder.run(feeds)
            state |= {tensor.name: outputs[tensor.output_name] for tensor in table if tensor.kind != "constant"}
        progress(min(1.0, (start + BATCH) / len(order)))
    return encoder.ranges(), decoder.ranges()


class _Observed:
    """A graph whose wanted tensors are made outputs."""

    def __init__(self, model: ir.Model, names: Iterable[str]) -> None:
        self._observers = {name: Observer() for name in names}
        self._random = np.random.default_rng(0)
        proto = ir.to_proto(model)
        outputs = {value.name for value in proto.graph.output}
        proto.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            for name in self._observers
            if name not in outputs
        )
        self._session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, feeds: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        results = dict(zip(self._names, self._session.run(None, feeds), strict=True))
        for name, observer in self._observers.items():
            observer.observe(results[name], self._random)
        return results

    def ranges(self) -> dict[str, QuantizationRange]:
        return {name: observer.best_range() for name, observer in self._observers.items()}
