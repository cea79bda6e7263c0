"""Removes everything from a finished graph that the engine does not need."""

from __future__ import annotations

import onnx_ir as ir


class StripPass(ir.passes.InPlacePass):
    """Remove documentation, metadata of tracer and simplifier, and types of inner tensors, which the engine infers.

    The graph computes the same results, so its record says ``unchanged``. Shapes of inputs and outputs are kept, since
    they contain the axis letters of the contract.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Strip in place."""
        graph = model.graph
        kept = {*graph.inputs, *graph.outputs}
        model.doc_string = graph.doc_string = None
        owners = [model, graph, *graph, *graph.inputs, *graph.initializers.values()]
        owners += [value for node in graph for value in node.outputs]
        for owner in owners:
            owner.metadata_props.clear()
        for node in graph:
            node.doc_string = None
            for value in node.outputs:
                if value not in kept:
                    value.shape = value.type = None
        return ir.passes.PassResult(model, modified=True)
