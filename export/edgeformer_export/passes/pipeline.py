"""Runs passes in order, and records how each one changed the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import onnx_ir as ir


class PassRecord(msgspec.Struct, kw_only=True, frozen=True):
    """Effect of one pass on one graph."""

    name: str
    """Class name of the pass."""
    nodes_before: int
    """Number of nodes in the graph before the pass."""
    nodes_after: int
    """Number of nodes in the graph after the pass."""
    bytes_before: int
    """Size of all weights before the pass, in bytes."""
    bytes_after: int
    """Size of all weights after the pass, in bytes."""


def run_passes(model: ir.Model, passes: Sequence[ir.passes.PassBase]) -> tuple[ir.Model, list[PassRecord]]:
    """Run passes in order, each with its own pre- and postconditions; an error of a pass says which one raised it."""
    records: list[PassRecord] = []
    for graph_pass in passes:
        name, nodes, size = type(graph_pass).__name__, len(model.graph), weight_bytes(model)
        try:
            model = graph_pass(model).model
        except Exception as error:
            error.add_note(f"Raised by pass {name}, after {[record.name for record in records]}.")
            raise
        records.append(
            PassRecord(
                name=name,
                nodes_before=nodes,
                nodes_after=len(model.graph),
                bytes_before=size,
                bytes_after=weight_bytes(model),
            )
        )
    return model, records


def weight_bytes(model: ir.Model) -> int:
    """Compute the total size of all initializers in bytes."""
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def operator_counts(model: ir.Model) -> Counter[str]:
    """Count nodes by operator, including those of subgraphs; names of operators outside the ONNX standard include the
    domain, as in ``com.microsoft.MatMulNBits``."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.all_nodes())
