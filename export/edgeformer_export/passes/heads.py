"""Lets the attention operator split heads itself."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir.passes import common


class FuseHeadsPass(ir.passes.InPlacePass):
    """Let the attention operator split heads.

    - ``MultiHeadAttention(q, Transpose(Reshape(k)), Transpose(Reshape(v)))`` becomes ``MultiHeadAttention(q, k, v)``
      if nothing else reads the separate heads.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuse in place."""
        fused = False
        for node in model.graph:
            if node.op_type != "MultiHeadAttention":
                continue
            joined = [_joined_heads(value) for value in node.inputs[1:3]]
            if all(value is not None for value in joined):
                for index, value in enumerate(joined, start=1):
                    node.replace_input_with(index, value)
                fused = True
        if fused:
            common.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, modified=fused)


def _joined_heads(value: ir.Value | None) -> ir.Value | None:
    """Return the ``(N, S, H * E)`` value that ``(N, H, S, E)`` is computed from; ``None`` if there is no such value, or
    if the heads have other readers."""
    transpose = value.producer() if value is not None else None
    if value is None or transpose is None or transpose.op_type != "Transpose" or len(list(value.uses())) != 1:
        return None
    reshaped = transpose.inputs[0]
    reshape = reshaped.producer() if reshaped is not None else None
    if reshape is None or reshape.op_type != "Reshape" or value.is_graph_output():
        return None
    source = reshape.inputs[0]
    if tuple(transpose.attributes.get_ints("perm", ())) != (0, 2, 1, 3) or reshaped is None or source is None:
        return None
    apart, joined = reshaped.shape, source.shape
    if apart is None or joined is None or len(joined) != 3 or not all(isinstance(size, int) for size in apart[2:]):
        return None
    same = list(joined[:2]) == list(apart[:2]) and joined[2] == math.prod(apart[2:])
    return source if same else None
