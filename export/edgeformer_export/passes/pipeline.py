"""Runs passes in order, measures the graph before and after each, and never keeps one that made the graph worse."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgeformer_runtime.bundle.report import PassRecord

SMALL_CONSTANTS = 1024
"""Bytes that a pass may add in exchange for nodes: shapes, axes, sizes."""


class PassFailedError(RuntimeError):
    """A pass raised; the message names it and those before it."""


def run_passes(model: ir.Model, passes: Sequence[ir.passes.PassBase]) -> tuple[ir.Model, list[PassRecord]]:
    """Run passes one after the other.

    A result is rejected if it has more weight bytes without fewer nodes, more nodes without fewer bytes, or more bytes
    than small constants have: a simplifier may enlarge a graph by folding a table that was shared. A pass whose result
    is faster, though larger, says so with an attribute ``may_grow``.

    Raises:
        PassFailedError: a pass raised.
    """
    records: list[PassRecord] = []
    for one_pass in passes:
        name = type(one_pass).__name__
        nodes_before, bytes_before = node_count(model), weight_bytes(model)
        before = ir.from_proto(ir.to_proto(model))
        try:
            result = one_pass(model)
        except Exception as error:
            done = ", ".join(record.name for record in records) or "none"
            raise PassFailedError(f"Pass {name} failed (passes before it: {done}): {error}") from error
        nodes_after, bytes_after = node_count(result.model), weight_bytes(result.model)
        grown, added = bytes_after - bytes_before, nodes_after - nodes_before
        worse = grown > SMALL_CONSTANTS or (grown > 0 and added >= 0) or (grown == 0 and added > 0)
        worse = worse and not getattr(one_pass, "may_grow", False)
        model = before if worse else result.model
        records.append(
            PassRecord(
                name=name,
                nodes_before=nodes_before,
                nodes_after=nodes_after,
                bytes_before=bytes_before,
                bytes_after=bytes_after,
                outcome="rejected" if worse else "changed" if result.modified else "unchanged",
            )
        )
    return model, records


def node_count(model: ir.Model) -> int:
    """Nodes of the main graph."""
    return len(model.graph)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers."""
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
