"""How each quantized precision stores weights and computes with them: the exporter's side of the table of precisions.

A new precision takes a row of :data:`~edgeformer_runtime.precision.PRECISIONS` and one of :data:`STRATEGIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from onnx_ir.passes import InPlacePass

from edgeformer_export.quantize.blocks import Int4Blocks, QuantizeBlocksPass, choose_block_size, quantize_blocks
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.layers import Layer, WeightReader
from edgeformer_export.quantize.rounding import round_for_inputs
from edgeformer_export.quantize.static import Int8Rows, QuantizeStaticPass, quantize_rows
from edgeformer_export.quantize.table import Integers, QuantizedWeight, signal_to_noise
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import MIN_BLOCK, PRECISIONS, Precision

MeasureMoments = Callable[[], Mapping[str, NDArray[np.float32]]]
"""Measures the second moments that count for weights, by the names of layers; without those that are unknown."""


Ranges = Mapping[str, QuantizationRange]
"""Range of each activation, by name."""


class PrecisionStrategy(Protocol):
    """One way to quantize weights."""

    def quantizes(self, reader: WeightReader) -> bool:
        """Whether an operator's weight is quantized in this way; if not, in that of the encoder's precision."""

    def rounded(self, layer: Layer, moments: MeasureMoments) -> Integers:
        """Round a weight."""

    def make_pass(self, weights: Mapping[str, QuantizedWeight[Any]], ranges: Ranges, target: Target) -> InPlacePass:
        """Make the pass that puts weights into a graph, by :attr:`WeightReader.name` of the operators to replace."""


class Int4BlockStrategy:
    """Blocks of a row's values share a scale. Fast for few rows, so the encoder's matrix products, which have many, are
    left to another strategy, as are operators that cannot read blocks and weights that are too narrow for them.

    Args:
        precision: its row of the table of precisions says how many values may share a scale.
    """

    def __init__(self, precision: Precision) -> None:
        self._precision = precision

    def quantizes(self, reader: WeightReader) -> bool:
        """See :meth:`PrecisionStrategy.quantizes`."""
        many_rows = reader.kind == "linear" and reader.file == contract.ENCODER_FILE
        return not many_rows and reader.kind != "stored" and reader.rows.shape[1] >= MIN_BLOCK

    def rounded(self, layer: Layer, moments: MeasureMoments) -> Int4Blocks:
        """See :meth:`PrecisionStrategy.rounded`."""
        largest = PRECISIONS[self._precision].block_size or MIN_BLOCK
        size, known = choose_block_size(layer.rows.shape[1], largest), moments().get(layer.name)
        return quantize_blocks(layer.rows, size) if known is None else round_for_inputs(layer.rows, known, size)

    def make_pass(
        self, weights: Mapping[str, QuantizedWeight[Int4Blocks]], ranges: Ranges, target: Target
    ) -> InPlacePass:
        """See :meth:`PrecisionStrategy.make_pass`."""
        return QuantizeBlocksPass(weights)


class Int8RowStrategy:
    """Each row has a scale, and activations are rounded by scales that calibration has fixed."""

    def quantizes(self, reader: WeightReader) -> bool:
        """See :meth:`PrecisionStrategy.quantizes`."""
        return True

    def rounded(self, layer: Layer, moments: MeasureMoments) -> Int8Rows:
        """See :meth:`PrecisionStrategy.rounded`."""
        return quantize_rows(layer.rows, None if layer.imported is None else layer.imported.rows)

    def make_pass(
        self, weights: Mapping[str, QuantizedWeight[Int8Rows]], ranges: Ranges, target: Target
    ) -> InPlacePass:
        """See :meth:`PrecisionStrategy.make_pass`."""
        return QuantizeStaticPass(weights, ranges, target)


STRATEGIES: dict[Precision, PrecisionStrategy] = {"int4": Int4BlockStrategy("int4"), "int8": Int8RowStrategy()}
"""The strategy of each precision whose weights are quantized, in the order of their passes."""

Table = Sequence[QuantizedWeight[Any]]
"""Every weight of a model that can be quantized."""


def make_table(
    layers: Sequence[Layer],
    precision: Precision,
    moments: MeasureMoments,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Table:
    """Round every weight to a bundle's precision, or to the encoder's where its strategy leaves an operator to that.

    Args:
        layers: all weights of a model.
        precision: the bundle's precision, with integers.
        moments: measures second moments; called once, if they are needed.
        progress: called with the fraction done, 0 … 1.
    """
    strategy, other = STRATEGIES[precision], PRECISIONS[precision].encoder
    table: list[QuantizedWeight[Any]] = []
    moments = cache(moments)
    size, done = sum(layer.rows.size for layer in layers), 0
    for layer in layers:
        readers: dict[Precision, list[WeightReader]] = {}
        for reader in layer.readers:
            readers.setdefault(precision if strategy.quantizes(reader) else other, []).append(reader)
        for name, of_precision in readers.items():
            integers = STRATEGIES[name].rounded(layer, moments)
            table.append(
                QuantizedWeight(layer, tuple(of_precision), name, integers, signal_to_noise(layer.rows, integers))
            )
        done += layer.rows.size
        progress(done / size)
    return table
