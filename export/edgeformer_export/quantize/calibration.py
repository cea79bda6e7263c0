"""Ranges of activations, observed while the fp32 graphs run on text of the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeformer_export.parity.forced import Arrays, Pair, batches, encode, open_graph, steps
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.session import FloatArray


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
        """Extend the range by the values of a tensor."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def range(self) -> QuantizationRange:
        """The whole observed range.

        Clipping it to lower the mean squared error was tried and made outputs worse: the rare large values matter.
        """
        scale = float(np.float32(max(self.high - self.low, 1e-8) / 255))
        return QuantizationRange(scale, int(np.clip(round(-self.low / scale), 0, 255)))


def calibrate(
    graphs: Graphs,
    wanted: Mapping[str, Iterable[str]],
    table: Sequence[StateTensor],
    pairs: Sequence[Pair],
    special: SpecialTokens,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[str, dict[str, QuantizationRange]]:
    """Observe activations while the decoder is fed the reference translations token by token.

    Args:
        graphs: the fp32 graphs, encoder and decoder.
        wanted: names of the float tensors to observe in each graph.
        table: the state table.
        pairs: what to feed.
        special: special token ids.
        progress: called with the fraction done, 0 … 1.

    Returns:
        Range by tensor name, for each graph.
    """
    observers = {file: {name: Observer() for name in wanted[file]} for file in graphs}
    opened = {file: open_graph(model, observers[file]) for file, model in graphs.items()}

    def observe(file: str, outputs: Arrays) -> Arrays:
        for name, observer in observers[file].items():
            observer.observe(outputs[name])
        return outputs

    all_batches = batches(pairs)
    for number, batch in enumerate(all_batches, 1):
        encoded = observe(contract.ENCODER_FILE, encode(opened[contract.ENCODER_FILE], batch, special))
        for outputs in steps(opened[contract.DECODER_FILE], encoded, table, batch, special):
            observe(contract.DECODER_FILE, outputs)
        progress(number / len(all_batches))
    return {file: {name: observer.range() for name, observer in found.items()} for file, found in observers.items()}
