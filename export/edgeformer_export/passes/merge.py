"""Merges matrix products with the same input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from edgeformer_export.passes.names import joined_name
from edgeformer_export.passes.patterns import Linear, constant, find_linears


class MergeLinearsPass(ir.passes.InPlacePass):
    """Merge linear layers that read the same activation into one.

    - ``MatMul(x, A) [+ a]``, ``MatMul(x, B) [+ b]``, … become ``Split(MatMul(x, [A B …]) [+ [a b …]])``, with a bias of
      zeros for those without.

    Use this pass for decoder steps, which have few rows: each product has a fixed cost, and splitting the result is
    cheap. Products whose weight is also an embedding table (``Gemm``) are not merged, so that the table stays one
    tensor.
    """

    def __init__(self, key: Callable[[Linear], Hashable] = lambda linear: None) -> None:
        """Set up the pass.

        Args:
            key: only layers with equal keys are merged.
        """
        super().__init__()
        self._key = key

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge in place."""
        graph = model.graph
        groups: dict[tuple[ir.Value, Hashable], list[Linear]] = defaultdict(list)
        for linear in find_linears(graph):
            if linear.nodes[0].op_type == "MatMul":
                groups[linear.activation, self._key(linear)].append(linear)
        merged = [linears for linears in groups.values() if len(linears) > 1]
        for linears in merged:
            _merge(graph, linears)
        if merged:
            common.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, modified=bool(merged))


def _merge(graph: ir.Graph, linears: list[Linear]) -> None:
    first, name = linears[0], f"{linears[0].output.name}.merged"
    weights = np.concatenate([linear.weight for linear in linears], axis=1)
    weight = constant(graph, joined_name(graph, [linear.constant for linear in linears]), weights)
    nodes = [ir.node("MatMul", [first.activation, weight])]
    if any(linear.bias is not None for linear in linears):
        biases = [
            np.zeros(linear.weight.shape[1], np.float32) if linear.bias is None else _bias(linear.bias)
            for linear in linears
        ]
        nodes.append(ir.node("Add", [nodes[0].outputs[0], constant(graph, f"{name}.bias", np.concatenate(biases))]))
    widths = [linear.weight.shape[1] for linear in linears]
    product = nodes[-1].outputs[0]
    product.name, product.type = name, first.output.type
    if first.output.shape is not None:
        product.shape = ir.Shape([*first.output.shape[:-1], sum(widths)])
    if len(set(widths)) == 1:
        split = ir.node("Split", [product], {"axis": -1, "num_outputs": len(widths)}, num_outputs=len(widths))
    else:
        sizes = constant(graph, f"{name}.widths", np.array(widths, np.int64))
        split = ir.node("Split", [product, sizes], {"axis": -1}, num_outputs=len(widths))
    graph.insert_before(first.nodes[0], [*nodes, split])
    for linear, output in zip(linears, split.outputs, strict=True):
        before = linear.output
        output.shape, output.type, output_name = before.shape, before.type, before.name
        before.replace_all_uses_with(output, replace_graph_outputs=True)
        graph.remove(list(reversed(linear.nodes)), safe=True)
        output.name = output_name


def _bias(value: ir.Value) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if value.const_value is None:
        raise ValueError(f"the bias `{value.name}` is not constant")
    return value.const_value.numpy()
