"""The products of a quantized graph, by the names of the parameters that they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from edgeformer_export.passes.patterns import MICROSOFT, constant_array
from edgeformer_export.quantize.layers import Layer
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.plan import LinearPlan

Place = Callable[[NDArray[Any]], int]
"""Returns where an array is in the file of weights, and writes it there if it is not."""
_PRODUCTS = {"MatMulIntegerToFloat", "QGemm"}


class NotPlannableError(Exception):
    """The kernels do not compute such a model; the message says why."""


class PlannedGraph:
    """A quantized graph, whose products are found by the names of the parameters that they come from."""

    def __init__(self, graph: ir.Model, file: str, layers: Sequence[Layer], place: Place) -> None:
        self.place, self.nodes = place, list(graph.graph)
        initializers = graph.graph.initializers
        products = {_result(node): node for node in self.nodes if node.op_type in _PRODUCTS}
        self.found: dict[str, LinearPlan] = {}
        self.tables: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self.outputs: dict[str, LinearPlan] = {}
        for layer in layers:
            for use in layer.uses:
                if use.file != file:
                    continue
                if use.kind == "lookup" and f"{use.name}.table.int8" in initializers:
                    table, scale = (
                        constant_array(initializers[f"{use.name}.table.{part}"]) for part in ("int8", "scale")
                    )
                    self.tables.append((table, scale.reshape(-1)))
                elif use.kind == "linear" and use.name in products:
                    self.add(products[use.name], use.name, layer)

    def add(self, node: ir.Node, name: str, layer: Layer) -> None:
        """Describe the parts of a product."""
        by_rows = node.op_type == "QGemm"
        places = (
            {"scale": 1, "zero": 2, "weight": 3, "columns": 4}
            if by_rows
            else {"scale": 2, "zero": 4, "weight": 1, "columns": 3}
        )
        value = {part: constant_array(node.inputs[index]) for part, index in places.items()}
        bias = None if by_rows or len(node.inputs) < 7 or node.inputs[6] is None else constant_array(node.inputs[6])
        if by_rows and (added := _added(node)) is not None:
            bias = added
        clipped = node.inputs[0].producer() if node.inputs[0] is not None else None
        columns, first = value["weight"].shape[0 if by_rows else 1], 0
        counts = [part.parameter.count for part in layer.parts] or [columns]
        names = [part.parameter.name for part in layer.parts] or [name]
        for part_name, count in zip(names, counts, strict=True):
            self.outputs[name] = self.found[part_name] = LinearPlan(
                columns=columns,
                first=first,
                count=count,
                by_rows=by_rows,
                weight=self.place(value["weight"]),
                scale=self.place(np.broadcast_to(value["columns"].reshape(-1), (columns,))),
                bias=None if bias is None else self.place(bias.reshape(-1)),
                input_scale=float(value["scale"].item()),
                input_zero=int(value["zero"].item()),
                input_most=254 if clipped is not None and clipped.op_type == "Clip" else 255,
            )
            first += count

    def linear(self, name: str) -> LinearPlan:
        """Return the product of a parameter."""
        if name not in self.found:
            raise NotPlannableError(f"`{name}` is not a product in int8")
        return self.found[name]

    def attention(self, name: str) -> tuple[LinearPlan, LinearPlan, LinearPlan]:
        """Return queries, keys and values."""
        return self.linear(f"{name}.query"), self.linear(f"{name}.key"), self.linear(f"{name}.value")

    def projection(self) -> LinearPlan:
        """Return the product that gives the logits."""
        for name, linear in self.outputs.items():
            if name == contract.LOGITS or linear.by_rows:
                return linear
        raise NotPlannableError("the output projection is not a product in int8")

    def table(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the embedding, ``(V, D)``, and its scales."""
        if len(self.tables) != 1:
            raise NotPlannableError("the embedding is not in int8")
        return self.tables[0]

    def attention_scale(self, kind: str) -> float:
        """Return the factor of the scores of all attentions of a kind, by their operator."""
        found = {
            node.attributes.get_float("scale")
            for node in self.nodes
            if node.op_type == kind and node.domain == MICROSOFT
        }
        if len(found) > 1:
            raise NotPlannableError("layers scale their attention differently")
        return next(iter(found), None) or 1.0


def _result(node: ir.Node) -> str:
    """Name of a product's output, its bias added."""
    uses = list(node.outputs[0].uses())
    if node.op_type == "QGemm" and _added(node) is not None:
        return str(uses[0].node.outputs[0].name)
    return str(node.outputs[0].name)


def _added(node: ir.Node) -> NDArray[Any] | None:
    """The constant that is added to a product."""
    uses = list(node.outputs[0].uses())
    if len(uses) != 1 or uses[0].node.op_type != "Add":
        return None
    for value in uses[0].node.inputs:
        if value is not None and value.const_value is not None:
            return constant_array(value)
    return None
