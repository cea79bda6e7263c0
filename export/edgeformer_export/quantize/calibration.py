"""Calibration: activation ranges, observed while the fp32 graphs run on text of the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgeformer_export.parity.inner_graphs import Values
from edgeformer_export.sample import grouped
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_export.weights import open_graph
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.search.forced_steps import Pair, forced_batch
from edgeformer_runtime.search.session import FloatArray

BATCH = 16
"""Number of sentences per batch."""
TOKENS = 2048
"""Maximum number of tokens per batch, all of whose activations are in memory at a time."""
TRANSLATING = (contract.ENCODER_FILE, contract.DECODER_FILE)
"""The graphs that run on every sentence."""


@dataclass(frozen=True)
class QuantizationRange:
    """Affine uint8 quantization of one activation tensor: ``real = scale * (quantized - zero_point)``."""

    scale: float
    zero_point: int


@dataclass
class Observer:
    """Tracks the smallest and largest values of a tensor; the range always includes zero."""

    low: float = 0.0
    high: float = 0.0

    def observe(self, values: FloatArray) -> None:
        """Extend the range to the values of a tensor."""
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def range(self) -> QuantizationRange:
        """Return quantization parameters for the full observed range.

        Clipping the range to lower the mean squared error was tried and made outputs worse: the rare large values
        matter.
        """
        scale = float(np.float32(max(self.high - self.low, 1e-8) / 255))
        return QuantizationRange(scale, int(np.clip(round(-self.low / scale), 0, 255)))


@dataclass(frozen=True)
class CalibrationData:
    """Graphs, and text of the training set that they are fed: sources to the encoder, and the reference translations to
    the decoder, token by token."""

    graphs: Graphs
    """Encoder and decoder in fp32."""
    table: Sequence[StateTensor]
    """The state table."""
    pairs: Sequence[Pair]
    """The text."""
    special: SpecialTokens


def calibrate(
    data: CalibrationData, names: Mapping[str, Iterable[str]], progress: Callable[[float], None] = lambda fraction: None
) -> dict[str, dict[str, QuantizationRange]]:
    """Observe activations.

    Args:
        data: the graphs and their text.
        names: names of the float tensors to observe in each graph.
        progress: called with the fraction done, 0 … 1.

    Returns:
        For each graph, the range of each tensor by name.
    """
    observers = {file: {name: Observer() for name in names[file]} for file in data.graphs}
    for file, outputs, _ in observed(data, names, progress):
        for name, observer in observers[file].items():
            observer.observe(outputs[name].numpy())
    return {file: {name: observer.range() for name, observer in by_name.items()} for file, by_name in observers.items()}


def observed(
    data: CalibrationData, names: Mapping[str, Iterable[str]], progress: Callable[[float], None] = lambda fraction: None
) -> Iterator[tuple[str, Values, NDArray[np.bool_]]]:
    """Run the graphs; see :func:`calibrate` for the arguments.

    Yields:
        For each run of a graph, its file, its outputs and inner tensors, and which sentences ``(N,)`` have not ended.
    """
    encoder, decoder = (open_graph(file, data.graphs[file], names.get(file, ())) for file in TRANSLATING)
    all_batches = batches(data.pairs)
    for number, pairs_of_batch in enumerate(all_batches, 1):
        batch = forced_batch(pairs_of_batch, data.special)
        encoded = encoder.encode(batch.source, batch.source_length)
        yield contract.ENCODER_FILE, encoded, batch.source_length > 0
        for position, outputs in enumerate(decoder.decode(encoded, data.table, batch.target)):
            yield contract.DECODER_FILE, outputs, position < batch.target_length
        progress(number / len(all_batches))


def batches(pairs: Sequence[Pair], tokens: int = TOKENS) -> list[Sequence[Pair]]:
    """Group pairs of similar source length, :data:`BATCH` at a time; fewer, if they had more tokens."""
    order = sorted(pairs, key=lambda pair: len(pair[0]))
    return [batch for _, batch in grouped(order, BATCH, tokens)]
