"""Runs passes in order, records how each one changed the graph, and rejects results that are worse."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import onnx_ir as ir

from edgeformer_export.passes.structure import Structure, operator_counts, rewired_nodes, structure
from edgeformer_export.report import PassRecord

SMALL_CONSTANTS = 1024
"""Bytes that a pass may add in exchange for fewer nodes: shapes, axes, sizes."""


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
    known: Structure | None = None  # structure of the current model, which takes long to compute
    for graph_pass in passes:
        name = type(graph_pass).__name__
        before = model.clone()
        try:
            result = graph_pass(model)
            _require_same_interface(before, result.model)
            may_grow = getattr(graph_pass, "may_grow", False)
            record, known = _record(name, before, known, result, may_grow=may_grow)
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


def _record(
    name: str, before: ir.Model, known: Structure | None, result: ir.passes.PassResult, *, may_grow: bool
) -> tuple[PassRecord, Structure | None]:
    """Record what a pass did.

    Args:
        name: name of the pass.
        before: copy of the model from before the pass.
        known: structure of ``before`` if an earlier pass needed it.
        result: what the pass returned.
        may_grow: accept a larger model.

    Returns:
        The record, and the structure of the model to continue with if it is known.
    """
    after = result.model
    record = PassRecord(
        name=name,
        nodes_before=node_count(before),
        nodes_after=node_count(after),
        bytes_before=weight_bytes(before),
        bytes_after=weight_bytes(after),
        outcome="unchanged",
    )
    grown, added = record.bytes_after - record.bytes_before, record.nodes_after - record.nodes_before
    worse = grown > SMALL_CONSTANTS or (grown > 0 and added >= 0) or (grown == 0 and added > 0)
    if worse and not may_grow:
        return msgspec.structs.replace(record, outcome="rejected"), known
    if not result.modified:
        return record, known
    old, new = known or structure(before), structure(after)
    if old == new:
        return record, old
    operators_before, operators_after = operator_counts(before), operator_counts(after)
    changed = msgspec.structs.replace(
        record,
        outcome="changed",
        removed=dict(operators_before - operators_after),
        added=dict(operators_after - operators_before),
        rewired=rewired_nodes(before, after),
        constants_removed=(old.constants - new.constants).total(),
        constants_added=(new.constants - old.constants).total(),
    )
    return changed, new


def _require_same_interface(before: ir.Model, after: ir.Model) -> None:
    for side in ("inputs", "outputs"):
        expected, actual = ([value.name for value in getattr(model.graph, side)] for model in (before, after))
        if actual != expected:
            raise ValueError(f"it changed the graph's {side} from {expected} to {actual}")
