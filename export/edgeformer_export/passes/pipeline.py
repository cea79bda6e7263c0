"""Runs passes in order, records how each one changed the graph, and rejects results that are worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import onnx_ir as ir

SMALL_CONSTANTS = 1024
"""Bytes that a pass may add in exchange for fewer nodes: shapes, axes, sizes."""


class PassRecord(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Effect of one pass on one graph; earlier versions recorded more, which is ignored."""

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
    outcome: Literal["changed", "unchanged", "rejected"]
    """``unchanged`` if operators and size of the weights are the same; ``rejected`` if the result was worse and was
    discarded."""
    removed: dict[str, int] = {}
    """Decrease in the number of nodes, by operator."""
    added: dict[str, int] = {}
    """Increase in the number of nodes, by operator."""


class PassFailedError(RuntimeError):
    """A pass raised an error or violated a condition; the message names the pass and those before it."""


def run_passes(model: ir.Model, passes: Sequence[ir.passes.PassBase]) -> tuple[ir.Model, list[PassRecord]]:
    """Run passes in order, each with its own pre- and postconditions.

    No pass may change the names or the order of a graph's inputs and outputs, which are the bundle's contract. A result
    is rejected if it has more weight bytes without fewer nodes, more nodes without fewer bytes, or adds more than
    :data:`SMALL_CONSTANTS` bytes: a simplifier may enlarge a graph by folding a table that was shared. A pass whose
    result is larger but faster declares this with the attribute ``may_grow``.

    Raises:
        PassFailedError: a pass raised an error, or a condition does not hold.
    """
    records: list[PassRecord] = []
    for graph_pass in passes:
        name = type(graph_pass).__name__
        before = model.clone()
        try:
            result = graph_pass(model)
            _require_same_interface(before, result.model)
            record = _record(name, before, result.model, may_grow=getattr(graph_pass, "may_grow", False))
        except Exception as error:
            done = ", ".join(record.name for record in records) or "none"
            cause = f"{error}: {error.__cause__}" if error.__cause__ is not None else str(error)
            raise PassFailedError(f"Pass {name} failed (passes before it: {done}): {cause}") from error
        records.append(record)
        model = before if record.outcome == "rejected" else result.model
    return model, records


def node_count(model: ir.Model) -> int:
    """Count the nodes of the main graph."""
    return len(model.graph)


def weight_bytes(model: ir.Model) -> int:
    """Compute the total size of all initializers in bytes."""
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


def operator_counts(model: ir.Model) -> Counter[str]:
    """Count nodes by operator, including those of subgraphs; names of operators outside the ONNX standard include the
    domain, as in ``com.microsoft.MatMulNBits``."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.all_nodes())


def _record(name: str, before: ir.Model, after: ir.Model, *, may_grow: bool) -> PassRecord:
    """Record what a pass did, as told by the graphs rather than by the pass."""
    nodes, size = (node_count(before), node_count(after)), (weight_bytes(before), weight_bytes(after))
    grown, added = size[1] - size[0], nodes[1] - nodes[0]
    worse = grown > SMALL_CONSTANTS or (grown > 0 and added >= 0) or (grown == 0 and added > 0)
    is_rejected = worse and not may_grow
    operators = operator_counts(before), operator_counts(after)
    is_changed = grown != 0 or operators[0] != operators[1]
    return PassRecord(
        name=name,
        nodes_before=nodes[0],
        nodes_after=nodes[1],
        bytes_before=size[0],
        bytes_after=size[1],
        outcome="rejected" if is_rejected else "changed" if is_changed else "unchanged",
        removed={} if is_rejected else dict(operators[0] - operators[1]),
        added={} if is_rejected else dict(operators[1] - operators[0]),
    )


def _require_same_interface(before: ir.Model, after: ir.Model) -> None:
    for side in ("inputs", "outputs"):
        expected, actual = ([value.name for value in getattr(model.graph, side)] for model in (before, after))
        if actual != expected:
            raise ValueError(f"it changed the graph's {side} from {expected} to {actual}")
