"""Quantizes weights to 4 bits in blocks, each block with its own scale; activations stay in fp32."""

from __future__ import annotations

from collections.abc import Mapping
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
    find_linears,
    find_lookups,
    replace,
)
from edgeformer_export.quantize.table import QuantizedWeight
from edgeformer_export.weights import row_slices
from edgeformer_runtime.precision import BLOCK_SIZE, MIN_BLOCK

Number = TypeVar("Number", np.int8, np.float32)

ACCURACY_LEVEL = 4
"""``MatMulNBits`` rounds each block of a row to int8 at run time, and multiplies integers."""
DIVISORS = np.linspace(6.5, 12, 23, dtype=np.float32)
"""The scales to try are a block's largest value divided by each of these, with the opposite sign, so that
the largest value may become -8, which has no positive counterpart."""
CHUNK = 1 << 16
"""Number of values rounded at a time; temporary arrays of this size stay in the processor's cache."""


@dataclass(frozen=True)
class Int4Blocks:
    """A matrix of 4-bit integers whose rows are divided into blocks: ``value = (integer - 8) * scale``.

    The last block of a row is padded with zeros.
    """

    packed: NDArray[np.uint8]
    """``(rows, blocks, block_size / 2)``; the lower half of a byte comes first."""
    scales: NDArray[np.float32]
    """``(rows, blocks)``; may be negative."""
    width: int
    """Number of values of a row, without padding."""

    @property
    def block_size(self) -> int:
        """Number of values that share a scale."""
        return int(2 * self.packed.shape[2])

    @property
    def nbytes(self) -> int:
        """Size of integers and scales, in bytes."""
        return self.packed.nbytes + self.scales.nbytes

    def restored(self, part: slice = slice(None)) -> NDArray[np.float32]:
        """Return what the operators read, ``(rows, width)``."""
        packed, scales = self.packed[part].astype(np.int16), self.scales[part]
        integers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*scales.shape, -1)
        values: NDArray[np.float32] = (integers - 8).astype(np.float32) * scales[:, :, None]
        return values.reshape(len(values), -1)[:, : self.width]


class QuantizeBlocksPass(ir.passes.InPlacePass):
    """Replace matrix products and embedding lookups with operators that read weights in blocks.

    Fast for one or a few rows; with many rows, :class:`QuantizeStaticPass` is faster. Requires ONNX Runtime's
    operators.

    - ``MatMul(x, W) [+ b]`` and ``Gemm(x, W, b)`` become ``MatMulNBits``.
    - ``Gather(table, ids)`` becomes ``GatherBlockQuantized``, followed by ``Slice`` if the table's rows were padded.
      The table's bytes equal those of a tied output projection, even one in the other graph.

    A row's result depends on the other rows of its batch only through float32 rounding.
    """

    def __init__(self, weights: Mapping[str, QuantizedWeight[Int4Blocks]]) -> None:
        """Set up the pass.

        Args:
            weights: the weights of the operators to replace, by the name of the
                :class:`~edgeformer_export.quantize.layers.WeightReader`.
        """
        super().__init__()
        self._weights = weights

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph in place."""
        graph = model.graph
        linears = [linear for linear in find_linears(graph) if linear.output.name in self._weights]
        lookups = [node for node in find_lookups(graph) if node.outputs[0].name in self._weights]
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
        blocks = self._weights[str(linear.output.name)].integers
        packed = constant(graph, f"{name}.blocks", blocks.packed)
        scales = constant(graph, f"{name}.scales", blocks.scales)
        attributes = {"K": width, "N": out, "accuracy_level": ACCURACY_LEVEL, **_attributes(blocks)}
        # The inputs between the scales and the bias are zero points and a column order.
        inputs = [linear.activation, packed, scales, None, None, linear.bias]
        node = ir.node("MatMulNBits", inputs if linear.bias is not None else inputs[:3], attributes, domain=MICROSOFT)
        replace(graph, linear.nodes, linear.nodes[0], [node])

    def _replace_lookup(self, graph: ir.Graph, node: ir.Node) -> None:
        name, blocks = f"{node.outputs[0].name}.table", self._weights[str(node.outputs[0].name)].integers
        packed = constant(graph, f"{name}.blocks", blocks.packed.reshape(len(blocks.packed), -1))
        scales = constant(graph, f"{name}.scales", blocks.scales)
        attributes = {"gather_axis": 0, "quantize_axis": 1, **_attributes(blocks)}
        inputs = [packed, node.inputs[1], scales]
        added = [ir.node("GatherBlockQuantized", inputs, attributes, domain=MICROSOFT)]
        if blocks.width % blocks.block_size:
            bounds = [constant(graph, f"{name}.slice.{at}", np.array([at])) for at in (0, blocks.width, -1)]
            added.append(ir.node("Slice", [added[0].outputs[0], *bounds]))
        replace(graph, (node,), node, added)


def _attributes(blocks: Int4Blocks) -> dict[str, int]:
    return {"bits": 4, "block_size": blocks.block_size}


def choose_block_size(width: int, largest: int = BLOCK_SIZE) -> int:
    """Choose the power of two from 16 to ``largest`` that minimizes the bytes of a row, including padding and scales.

    On a tie, the larger block size is chosen. If ``largest`` divides the width, it is the result.
    """
    sizes = [1 << power for power in range(MIN_BLOCK.bit_length() - 1, largest.bit_length())]
    return min(reversed(sizes), key=lambda size: -(-width // size) * (size // 2 + 4))


def quantize_blocks(matrix: NDArray[np.float32], block_size: int) -> Int4Blocks:
    """Round a matrix to 4-bit integers, symmetrically, with the scale of least squared error for each block of a row.

    Args:
        matrix: ``(rows, width)``.
        block_size: number of values that share a scale.
    """
    parts = [_quantize_part(matrix[rows], block_size) for rows in row_slices(matrix)]
    packed, scales = [part.packed for part in parts], [part.scales for part in parts]
    return Int4Blocks(np.concatenate(packed), np.concatenate(scales), matrix.shape[1])


def _quantize_part(matrix: NDArray[np.float32], block_size: int) -> Int4Blocks:
    padded = _padded(matrix, block_size).reshape(-1, block_size)
    integers, scales = np.empty(padded.shape, np.int8), np.empty(len(padded), np.float32)
    step = max(1, CHUNK // block_size)
    for start in range(0, len(padded), step):
        part = slice(start, start + step)
        integers[part], scales[part] = _round_blocks(padded[part])
    rows = integers.reshape(len(matrix), -1)[:, : matrix.shape[1]]
    return pack_blocks(rows, scales.reshape(len(matrix), -1), block_size)


def pack_blocks(integers: NDArray[np.int8], scales: NDArray[np.float32], block_size: int) -> Int4Blocks:
    """Store integers as the operators read them.

    Args:
        integers: ``(rows, width)``, in -8 … 7.
        scales: ``(rows, blocks)``.
        block_size: number of values that share a scale.
    """
    shifted = (_padded(integers, block_size) + np.int8(8)).astype(np.uint8)
    packed = np.bitwise_or(shifted[:, ::2], shifted[:, 1::2] << 4, dtype=np.uint8)
    return Int4Blocks(packed.reshape(*scales.shape, -1), scales, integers.shape[1])


def _padded(matrix: NDArray[Number], block_size: int) -> NDArray[Number]:
    """Fill up the last block of each row with zeros."""
    return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % block_size)))


def _round_blocks(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
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
