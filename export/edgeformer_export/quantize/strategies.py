"""How each quantized precision stores weights and computes with them: the exporter's side of the table of precisions.

A new precision takes a row of :data:`~edgeformer_runtime.precision.PRECISIONS` and one of :data:`STRATEGIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeformer_export.quantize.blocks import (
    QuantizeBlocks,
    RoundBlocks,
    choose_block_size,
    dequantize_blocks,
)
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.layers import Layer, Use
from edgeformer_export.quantize.static import GivenScales, QuantizeStatic, quantize_columns
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import MIN_BLOCK, Precision

Stored = tuple[Callable[[slice], NDArray[np.float32]], int]
"""What some of the rows of a stored weight are read as, and the size of the weight in bytes."""


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """What the passes on a graph need to know."""

    target: Target
    """Which operators may be used."""
    ranges: Mapping[str, QuantizationRange]
    """Range of each activation."""
    projections: frozenset[str]
    """Digests of the weights that are output projections in any graph."""
    given: Mapping[str, GivenScales]
    """Scales of operators that were quantized elsewhere."""
    round_blocks: RoundBlocks
    """Rounds weights in blocks."""


class Strategy(Protocol):
    """One way to quantize weights."""

    def quantizes(self, use: Use) -> bool:
        """Whether an operator's weight is quantized in this way; if not, in that of the encoder's precision."""

    def make_pass(self, graph: GraphFacts, names: Container[str]) -> ir.passes.PassBase:
        """Make the pass that rewrites the operators of these names, which are :attr:`Use.name`."""

    def stored(self, layer: Layer, round_blocks: RoundBlocks) -> Stored:
        """Round a weight as the pass does."""


@dataclass(frozen=True)
class InBlocks:
    """Blocks of a row's values share a scale. Fast for few rows, so the encoder's matrix products, which have many, are
    left to another strategy, as are operators that cannot read blocks and weights that are too narrow for them."""

    bits: int

    def quantizes(self, use: Use) -> bool:
        """See :meth:`Strategy.quantizes`."""
        many_rows = use.kind == "linear" and use.file == contract.ENCODER_FILE
        return not many_rows and use.kind != "stored" and use.rows.shape[1] >= MIN_BLOCK

    def make_pass(self, graph: GraphFacts, names: Container[str]) -> ir.passes.PassBase:
        """See :meth:`Strategy.make_pass`."""
        return QuantizeBlocks(self.bits, only=names, round_blocks=graph.round_blocks)

    def stored(self, layer: Layer, round_blocks: RoundBlocks) -> Stored:
        """See :meth:`Strategy.stored`."""
        width = layer.rows.shape[1]
        blocks = round_blocks(layer.rows, self.bits, choose_block_size(width, self.bits))
        nbytes = blocks.packed.nbytes + blocks.scales.nbytes
        return lambda part: dequantize_blocks(blocks.rows(part), self.bits, width), nbytes


class StaticRows:
    """Each row has a scale, and activations are rounded by scales that calibration has fixed."""

    def quantizes(self, use: Use) -> bool:
        """See :meth:`Strategy.quantizes`."""
        return True

    def make_pass(self, graph: GraphFacts, names: Container[str]) -> ir.passes.PassBase:
        """See :meth:`Strategy.make_pass`."""
        return QuantizeStatic(graph.ranges, graph.target, graph.projections, only=names, given=graph.given)

    def stored(self, layer: Layer, round_blocks: RoundBlocks) -> Stored:
        """See :meth:`Strategy.stored`."""
        integers, scale = quantize_columns(layer.rows.T, None if layer.given is None else layer.given.rows)
        return lambda part: integers.T[part] * scale[part, None], integers.nbytes + scale.nbytes


STRATEGIES: dict[Precision, Strategy] = {"int4": InBlocks(4), "int8": StaticRows()}
"""The strategy of each precision whose weights are quantized, in the order of their passes."""
