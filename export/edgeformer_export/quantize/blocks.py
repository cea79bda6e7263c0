"""Quantizes weights to 8 or 4 bits in blocks, each block with its own scale; activations stay in fp32."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgeformer_export.passes.patterns import (
    MICROSOFT,
    Linear,
    constant,
    constant_array,
    find_linears,
    find_lookups,
    is_chosen,
    replace,
)
from edgeformer_export.weights import row_slices
from edgeformer_runtime.precision import BLOCK_SIZE, MIN_BLOCK

Number = TypeVar("Number", np.int8, np.float32)

ACCURACY_LEVEL = 4
"""``MatMulNBits`` rounds each block of a row to int8 at run time, and multiplies integers."""
DIVISORS = np.linspace(6.5, 12, 23, dtype=np.float32)
"""For 4 bits, the scales to try are a block's largest value divided by each of these, with the opposite sign, so that
the largest value may become -8, which has no positive counterpart."""
CHUNK = 1 << 16
"""Number of values rounded at a time; temporary arrays of this size stay in the processor's cache."""


@dataclass(frozen=True)
class Blocks:
    """A matrix whose rows are divided into blocks: ``value = (integer - 2 ** (bits - 1)) * scale``.

    The last block of a row is padded with zeros.
    """

    packed: NDArray[np.uint8]
    """``(rows, blocks, block_size * bits / 8)``; with 4 bits, the lower half of a byte comes first."""
    scales: NDArray[np.float32]
    """``(rows, blocks)``; may be negative."""
    block_size: int

    def rows(self, part: slice) -> Blocks:
        """Return some of the rows."""
        return Blocks(self.packed[part], self.scales[part], self.block_size)


RoundBlocks = Callable[[NDArray[np.float32], int, int], Blocks]
"""Rounds a matrix to integers in blocks; see :func:`quantize_blocks` for the arguments."""


class QuantizeBlocks(ir.passes.InPlacePass):
    """Replace matrix products and embedding lookups with operators that read weights in blocks.

    Fast for one or a few rows; with many rows, :class:`QuantizeStatic` is faster. Requires ONNX Runtime's operators.

    - ``MatMul(x, W) [+ b]`` and ``Gemm(x, W, b)`` become ``MatMulNBits``.
    - ``Gather(table, ids)`` becomes ``GatherBlockQuantized``, followed by ``Slice`` if the table's rows were padded.
      The table's bytes equal those of a tied output projection, even one in the other graph.

    A row's result depends on the other rows of its batch only through float32 rounding.
    """

    def __init__(
        self, bits: int, *, only: Container[str] | None = None, round_blocks: RoundBlocks | None = None
    ) -> None:
        """Set up the pass.

        Args:
            bits: 8 or 4.
            only: names of :class:`~edgeformer_export.quantize.layers.Use` to replace; ``None`` for all.
            round_blocks: rounds the weights; :func:`quantize_blocks` by default.
        """
        super().__init__()
        self._bits, self._only = bits, only
        self._round = round_blocks or quantize_blocks

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph in place."""
        graph = model.graph
        linears = [
            linear
            for linear in find_linears(graph)
            if linear.weight.shape[0] >= MIN_BLOCK and is_chosen(linear.output.name, self._only)
        ]
        lookups = [
            node
            for node in find_lookups(graph)
            if constant_array(node.inputs[0]).shape[1] >= MIN_BLOCK and is_chosen(node.outputs[0].name, self._only)
        ]
        for linear in linears:
            self._replace_linear(graph, linear)
        for node in lookups:
            self._replace_lookup(graph, node)
        if linears or lookups:
            model.opset_imports.setdefault(MICROSOFT, 1)
        common.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, modified=bool(linears or lookups))

    def _replace_linear(self, graph: ir.Graph, linear: Linear) -> None:
        name, (width, out) = f"{linear.output.name}.weight", linear.weight.shape
        blocks = self._blocks(linear.weight.T)
        packed = constant(graph, f"{name}.blocks", blocks.packed)
        scales = constant(graph, f"{name}.scales", blocks.scales)
        attributes = {"K": width, "N": out, "accuracy_level": ACCURACY_LEVEL, **self._attributes(blocks)}
        # The inputs between the scales and the bias are zero points and a column order.
        inputs = [linear.activation, packed, scales, None, None, linear.bias]
        node = ir.node("MatMulNBits", inputs if linear.bias is not None else inputs[:3], attributes, domain=MICROSOFT)
        replace(graph, linear.nodes, linear.nodes[0], [node])

    def _replace_lookup(self, graph: ir.Graph, node: ir.Node) -> None:
        table, name = constant_array(node.inputs[0]), f"{node.outputs[0].name}.table"
        blocks = self._blocks(table)
        rows, width = table.shape
        packed = constant(graph, f"{name}.blocks", blocks.packed.reshape(rows, -1))
        scales = constant(graph, f"{name}.scales", blocks.scales)
        attributes = {"gather_axis": 0, "quantize_axis": 1, **self._attributes(blocks)}
        inputs = [packed, node.inputs[1], scales]
        added = [ir.node("GatherBlockQuantized", inputs, attributes, domain=MICROSOFT)]
        if width % blocks.block_size:
            bounds = [constant(graph, f"{name}.slice.{at}", np.array([at])) for at in (0, width, -1)]
            added.append(ir.node("Slice", [added[0].outputs[0], *bounds]))
        replace(graph, (node,), node, added)

    def _attributes(self, blocks: Blocks) -> dict[str, int]:
        return {"bits": self._bits, "block_size": blocks.block_size}

    def _blocks(self, matrix: NDArray[np.float32]) -> Blocks:
        return self._round(matrix, self._bits, choose_block_size(matrix.shape[1], self._bits))


def choose_block_size(width: int, bits: int, largest: int = BLOCK_SIZE) -> int:
    """Choose the power of two from 16 to ``largest`` that minimizes the bytes of a row, including padding and scales.

    On a tie, the larger block size is chosen. If ``largest`` divides the width, it is the result.
    """
    sizes = [1 << power for power in range(MIN_BLOCK.bit_length() - 1, largest.bit_length())]
    return min(reversed(sizes), key=lambda size: -(-width // size) * (size * bits // 8 + 4))


def quantize_blocks(matrix: NDArray[np.float32], bits: int, block_size: int) -> Blocks:
    """Round a matrix to integers, symmetrically, with one scale for each block of a row.

    With 8 bits, the block's largest value becomes 127. With 4 bits, a search finds the scale with the least squared
    error.

    Args:
        matrix: ``(rows, width)``.
        bits: 8 or 4.
        block_size: number of values that share a scale.
    """
    parts = [_quantize_rows(matrix[rows], bits, block_size) for rows in row_slices(matrix)]
    packed, scales = [part.packed for part in parts], [part.scales for part in parts]
    return Blocks(np.concatenate(packed), np.concatenate(scales), block_size)


def _quantize_rows(matrix: NDArray[np.float32], bits: int, block_size: int) -> Blocks:
    padded = _padded(matrix, block_size).reshape(-1, block_size)
    integers, scales = np.empty(padded.shape, np.int8), np.empty(len(padded), np.float32)
    step = max(1, CHUNK // block_size)
    for start in range(0, len(padded), step):
        part = slice(start, start + step)
        integers[part], scales[part] = (_round_to_8_bits if bits == 8 else _round_to_4_bits)(padded[part])
    return pack_blocks(integers.reshape(len(matrix), -1), scales.reshape(len(matrix), -1), bits, block_size)


def pack_blocks(integers: NDArray[np.int8], scales: NDArray[np.float32], bits: int, block_size: int) -> Blocks:
    """Store integers as the operators read them.

    Args:
        integers: ``(rows, width)``, from ``-(2 ** (bits - 1))``.
        scales: ``(rows, blocks)``.
        bits: 8 or 4.
        block_size: number of values that share a scale.
    """
    packed = (_padded(integers, block_size) + np.int16(2 ** (bits - 1))).astype(np.uint8)
    if bits == 4:
        packed = np.bitwise_or(packed[:, ::2], packed[:, 1::2] << 4, dtype=np.uint8)
    return Blocks(packed.reshape(*scales.shape, -1), scales, block_size)


def _padded(matrix: NDArray[Number], block_size: int) -> NDArray[Number]:
    """Fill up the last block of each row with zeros."""
    return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % block_size)))


def dequantize_blocks(blocks: Blocks, bits: int, width: int) -> NDArray[np.float32]:
    """Restore the matrix that the operators read from blocks, ``(rows, width)``."""
    integers = blocks.packed.astype(np.int16)
    if bits == 4:
        integers = np.stack([integers & 15, integers >> 4], axis=-1).reshape(*integers.shape[:2], -1)
    values: NDArray[np.float32] = (integers - 2 ** (bits - 1)).astype(np.float32) * blocks.scales[:, :, None]
    return values.reshape(len(values), -1)[:, :width]


def _round_to_8_bits(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return integers in -127 … 127 and scales for blocks ``(blocks, block_size)``."""
    scale = _not_zero(np.abs(values).max(axis=1) / np.float32(127))
    return np.clip(np.rint(values / scale[:, None]), -127, 127), scale


def _round_to_4_bits(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return integers in -8 … 7 and scales for blocks ``(blocks, block_size)``.

    For given integers, the best scale is ``values · integers / integers · integers``, and the squared error is
    ``values · values - gain`` with ``gain = (values · integers)² / integers · integers``. So the integers of each
    candidate scale are compared by their gain.
    """
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1)[:, None], axis=1)[:, 0]
    best, best_gain = np.ones_like(largest), np.full_like(largest, -1)
    for divisor in DIVISORS:
        candidate = _not_zero(-largest / divisor)
        product, square = _moments(values, four_bits(values, candidate[:, None]))
        gain = product * product / square
        better = gain > best_gain
        best, best_gain = np.where(better, candidate, best), np.where(better, gain, best_gain)
    integers = four_bits(values, best[:, None])
    product, square = _moments(values, integers)
    return integers, _not_zero(product / square)


def four_bits(values: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round ``values / scale`` to integers in -8 … 7."""
    integers: NDArray[np.float32] = np.clip(np.rint(values / scale), -8, 7)
    return integers


def _moments(
    values: NDArray[np.float32], integers: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Compute ``values · integers`` and ``integers · integers`` of each block; the latter is at least 1."""
    product = np.einsum("bi,bi->b", values, integers)
    return product, np.maximum(np.einsum("bi,bi->b", integers, integers), 1)


def _not_zero(scale: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scales, replaced by 1 for blocks of zeros."""
    filled: NDArray[np.float32] = np.where(scale == 0, np.float32(1), scale)
    return filled
