"""Quantizes weights to int8 per output channel, and activations to uint8 with calibrated ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

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
    replace,
)
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.layers import STORED_ONLY, find_stored, stored_name
from edgeformer_export.quantize.table import QuantizedWeight
from edgeformer_export.weights import row_slices
from edgeformer_runtime.bundle.manifest import Target

SYMMETRIC_ZERO = 127
"""Zero point of activations whose integers are in -127 … 127, stored as uint8."""


@dataclass(frozen=True)
class Int8Rows:
    """A matrix of integers in -127 … 127, each row with its own scale."""

    integers: NDArray[np.int8]
    """``(rows, width)``."""
    scales: NDArray[np.float32]
    """``(rows,)``."""

    @property
    def nbytes(self) -> int:
        """Size of integers and scales, in bytes."""
        return self.integers.nbytes + self.scales.nbytes

    def restored(self, part: slice = slice(None)) -> NDArray[np.float32]:
        """Return what the operators read, ``(rows, width)``."""
        return self.integers[part] * self.scales[part, None]


@dataclass(frozen=True)
class IntegerProduct:
    """A matrix product of integers, as the pass has put it into the graph."""

    weight: Int8Rows
    """Its weight, ``(out, in)``."""
    by_rows: bool
    """Whether the graph has the integers as ``(out, in)``, rather than ``(in, out)``."""
    bias: NDArray[np.float32] | None
    """What is added to its result, ``(out,)``."""
    input: QuantizationRange
    """How its input is rounded."""
    is_symmetric: bool
    """Whether the integers of its input are in -127 … 127."""


class _QuantizedInput(NamedTuple):
    """The input of integer products, with the constants that it was rounded by."""

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


class QuantizeStaticPass(ir.passes.InPlacePass):
    """Replace matrix products and embedding lookups with integer operators.

    The activation's scale is fixed at export, so a row's result is independent of the other rows in its batch.

    - ``MatMul(x, W) [+ b]``, ``Gemm(x, W, b)`` become ``QuantizeLinear`` (uint8) and ``MatMulIntegerToFloat``, or
      ``QGemm`` where the weight is transposed (target ``ort``); ``MatMulInteger``, ``Cast``, ``Mul``, ``Add``
      (``portable``).
    - ``Relu`` before ``QuantizeLinear`` is removed, since the integers are never negative.
    - ``Gather(table, ids)`` reads int8 rows and scales them; a factor applied to the result is folded into the scale. A
      table that is also the output projection is stored once: for ``QGemm``, as the table's rows; for ``portable``, as
      the ``(D, V)`` matrix of the projection, which is gathered along its second axis.
    - ``LSTM``, ``GRU`` and ``Conv`` keep their arithmetic, since they have no integer operator that is fast and has
      fixed scales: their weights are stored as int8, and the engine converts them to float when it opens the graph.
    """

    def __init__(
        self, weights: Mapping[str, QuantizedWeight[Int8Rows]], ranges: Mapping[str, QuantizationRange], target: Target
    ) -> None:
        """Set up the pass.

        Args:
            weights: the weights of the operators to replace, by the name of the
                :class:`~edgeformer_export.quantize.layers.WeightReader`.
            ranges: range of each activation by name, for every name in :func:`activations`.
            target: which operators may be used.
        """
        super().__init__()
        self._weights, self._ranges, self._target = weights, ranges, target
        self.products: dict[str, IntegerProduct] = {}
        """The products that the pass has made, by name."""
        self.tables: dict[str, Int8Rows] = {}
        """The tables of its lookups, by name; factors that follow a lookup are in the scales."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph in place."""
        graph = model.graph
        quantized_inputs: dict[tuple[str, QuantizationRange], _QuantizedInput] = {}
        linears = [linear for linear in find_linears(graph) if linear.output.name in self._weights]
        lookups = [node for node in find_lookups(graph) if node.outputs[0].name in self._weights]
        stored = [weight for weight in find_stored(graph) if stored_name(*weight) in self._weights]
        for linear in linears:
            self._replace_linear(graph, linear, quantized_inputs)
        for node in lookups:
            self._replace_lookup(graph, node)
        for node, index in stored:
            _store_as_integers(graph, node, index, self._weights[stored_name(node, index)].integers)
        if self._target == "ort" and linears:
            model.opset_imports.setdefault(MICROSOFT, 1)
        common.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, modified=bool(linears or lookups or stored))

    def _replace_linear(
        self, graph: ir.Graph, linear: Linear, quantized_inputs: dict[tuple[str, QuantizationRange], _QuantizedInput]
    ) -> None:
        imported = self._weights[str(linear.output.name)].layer.imported
        source, bounds = linear.activation, self._ranges[str(linear.activation.name)]
        if is_symmetric := imported is not None and imported.activation is not None:
            bounds = QuantizationRange(imported.activation, SYMMETRIC_ZERO)
        relu = source.producer()
        if relu is not None and relu.op_type == "Relu" and bounds.zero_point == 0 and relu.inputs[0] is not None:
            source = relu.inputs[0]  # negative values become zero anyway
        added = []
        name = str(linear.activation.name)
        key = name, bounds
        if key not in quantized_inputs:
            suffix = f".{len(quantized_inputs) + 1}" * is_symmetric
            scale = constant(graph, f"{name}.scale{suffix}", np.array(bounds.scale, np.float32))
            zero_point = constant(graph, f"{name}.zero_point{suffix}", np.array(bounds.zero_point, np.uint8))
            added.append(ir.node("QuantizeLinear", [source, scale, zero_point]))
            if is_symmetric:
                highest = constant(graph, "highest_symmetric_integer", np.array(2 * SYMMETRIC_ZERO, np.uint8))
                added.append(ir.node("Clip", [added[-1].outputs[0], None, highest]))
            added[-1].outputs[0].name = f"{name}.uint8{suffix}"
            quantized_inputs[key] = _QuantizedInput(added[-1].outputs[0], scale, zero_point)
        rows, bias = self._weights[str(linear.output.name)].integers, linear.bias
        by_rows = linear.nodes[0].op_type == "Gemm" and linear.nodes[0].attributes.get_int("transB") == 1
        values = None if bias is None or bias.const_value is None else constant_array(bias)
        product = IntegerProduct(rows, by_rows, values, bounds, is_symmetric)
        self.products[str(linear.output.name)] = product
        added += self._product(graph, linear, product, quantized_inputs[key])
        replace(graph, linear.nodes, linear.nodes[0], added)

    def _product(
        self, graph: ir.Graph, linear: Linear, product: IntegerProduct, quantized: _QuantizedInput
    ) -> list[ir.Node]:
        """Make the nodes of an integer matrix product, including rescaling and bias."""
        activation, scale, zero_point = quantized
        name = f"{linear.output.name}.weight"
        rows, columns, weight_scale = product.weight.integers, product.weight.integers.T, product.weight.scales
        if self._target == "portable":
            packed = constant(graph, f"{name}.int8", columns)
            summed = ir.node("MatMulInteger", [activation, packed, zero_point])
            cast = ir.node("Cast", [summed.outputs[0]], {"to": ir.DataType.FLOAT})
            scales = constant(graph, f"{name}.scale", weight_scale * constant_array(scale))
            nodes = [summed, cast, ir.node("Mul", [cast.outputs[0], scales])]
        elif product.by_rows:
            packed = constant(graph, f"{name}.int8", rows)
            zeros = constant(graph, f"{name}.zero_point", np.zeros(len(weight_scale), np.int8))
            scales = constant(graph, f"{name}.scale", weight_scale)
            inputs = [activation, scale, zero_point, packed, scales, zeros]
            nodes = [ir.node("QGemm", inputs, {"transB": 1}, domain=MICROSOFT)]  # its own bias would be in integers
        else:
            packed, scales = constant(graph, f"{name}.int8", columns), constant(graph, f"{name}.scale", weight_scale)
            operands = [activation, packed, scale, scales, zero_point, None, linear.bias]
            return [ir.node("MatMulIntegerToFloat", operands, domain=MICROSOFT)]
        if linear.bias is not None:
            nodes.append(ir.node("Add", [nodes[-1].outputs[0], linear.bias]))
        return nodes

    def _replace_lookup(self, graph: ir.Graph, node: ir.Node) -> None:
        ids, name = node.inputs[1], str(node.outputs[0].name)
        rows, readers = self._weights[name].integers, self._weights[name].layer.readers
        transposed = self._target == "portable" and any(reader.kind == "linear" for reader in readers)
        factor = _factor(node)
        nodes = (node,) if factor is None else (node, factor[0])
        packed = constant(graph, f"{name}.table.int8", rows.integers.T if transposed else rows.integers)
        scale = rows.scales if factor is None else rows.scales * factor[1]
        self.tables[name] = Int8Rows(rows.integers, scale)
        scales = constant(graph, f"{name}.table.scale", scale[:, None])
        gathered = ir.node("Gather", [packed, ids], {"axis": int(transposed)})
        added = [gathered]
        if transposed:
            # (D, …) -> (…, D)
            rank = len(node.outputs[0].shape) if node.outputs[0].shape is not None else None
            if rank is None:
                raise ValueError(f"the rank of `{name}` is unknown")
            added.append(ir.node("Transpose", [gathered.outputs[0]], {"perm": [*range(1, rank), 0]}))
        cast = ir.node("Cast", [added[-1].outputs[0]], {"to": ir.DataType.FLOAT})
        row_scale = ir.node("Gather", [scales, ids], {"axis": 0})
        added += [cast, row_scale, ir.node("Mul", [cast.outputs[0], row_scale.outputs[0]])]
        replace(graph, nodes, node, added)


def _factor(lookup: ir.Node) -> tuple[ir.Node, np.float32] | None:
    """Return the only operator that uses a lookup if it multiplies by a scalar, together with the scalar."""
    uses = list(lookup.outputs[0].uses())
    if len(uses) != 1 or lookup.outputs[0].is_graph_output() or uses[0].node.op_type != "Mul":
        return None
    product = uses[0].node
    for value in product.inputs:
        tensor = value.const_value if value is not None else None
        if tensor is not None and tensor.size == 1:
            return product, np.float32(tensor.numpy().item())
    return None


def quantize_rows(rows: NDArray[np.float32], scales: NDArray[np.float32] | None = None) -> Int8Rows:
    """Quantize to int8 symmetrically, with one scale per row.

    Args:
        rows: ``(rows, width)``.
        scales: scales ``(rows,)``; by default, those that map the largest value of a row to 127.
    """
    if scales is None:
        scales = (np.maximum(rows.max(axis=1), -rows.min(axis=1)) / 127).astype(np.float32)
        scales[scales == 0] = 1.0
    integers = np.empty(rows.shape, np.int8)
    for part in row_slices(rows):
        integers[part] = np.clip(np.rint(rows[part] / scales[part, None]), -127, 127)
    return Int8Rows(integers, scales)


def activations(graph: ir.Graph) -> list[str]:
    """List the names of all tensors that need a calibrated range."""
    return sorted({str(linear.activation.name) for linear in find_linears(graph)})


def _store_as_integers(graph: ir.Graph, node: ir.Node, index: int, rows: Int8Rows) -> None:
    """Replace a weight with its computation from int8 values, with one scale per index of its leading axes."""
    weight, leading = constant_array(node.inputs[index]), STORED_ONLY[node.op_type][1]
    name = stored_name(node, index)
    packed = constant(graph, f"{name}.int8", rows.integers.reshape(weight.shape))
    scale_shape = (*weight.shape[:leading], *[1] * (weight.ndim - leading))
    scales = constant(graph, f"{name}.scale", rows.scales.reshape(scale_shape))
    cast = ir.node("Cast", [packed], {"to": ir.DataType.FLOAT})
    product = ir.node("Mul", [cast.outputs[0], scales])
    cast.outputs[0].name, product.outputs[0].name = f"{name}.cast", name
    graph.insert_before(node, [cast, product])
    node.replace_input_with(index, product.outputs[0])
