"""Two implementations of a residual sum and its norm: one for a single row, one for many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import RewritePass
from onnxscript.rewriter.ort_fusions.skip_normalization import SkipLayerNormFusion, SkipRmsNormFusion

from edgeformer_export.passes.patterns import constant, replace


class FuseSkipNormPass(RewritePass):
    """Fuse a residual sum and its norm into one operator, by the rules of onnxscript.

    - ``LayerNormalization(Add(x, y))`` becomes ``SkipLayerNormalization(x, y)``, whose fourth output is the sum, which
      pre-norm models reuse.
    - ``SimplifiedLayerNormalization``, which is RMSNorm, becomes ``SkipSimplifiedLayerNormalization`` likewise.
    """

    def __init__(self) -> None:
        kinds: tuple[Any, ...] = (SkipLayerNormFusion, SkipRmsNormFusion)  # untyped in onnxscript
        super().__init__([kind.rule(kind.__name__) for kind in kinds])

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuse in place."""
        result = super().call(model)
        result.model.graph.sort()  # another reader of the sum may stand before the norm
        for node in model.graph:
            if node.op_type.startswith("Skip"):
                normed, mean, deviation, total = node.outputs
                mean.name = deviation.name = ""  # only needed for training
                summand = node.inputs[0]
                assert summand is not None
                if node.inputs[-1] is None:  # with a fifth input, the engine does not fuse the bias of a product
                    node.resize_inputs(len(node.inputs) - 1)
                for output in (normed, total):
                    output.shape, output.type = summand.shape, summand.type
                if not total.uses() and not total.is_graph_output():
                    node.resize_outputs(1)
        return result


class VectorNormPass(ir.passes.InPlacePass):
    """Replace a norm with operators that ONNX Runtime vectorizes.

    - ``LayerNormalization(x, gamma, beta)`` becomes ``SimplifiedLayerNormalization(x - ReduceMean(x), gamma) + beta``:
      the root mean square of centered values is their standard deviation.

    On the CPU, ``LayerNormalization`` and ``SkipLayerNormalization`` are not vectorized. With four or more rows of 512,
    the four nodes are faster: at 32 rows, they take a quarter of the time.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace in place."""
        graph, changed = model.graph, False
        for norm in list(graph):
            if norm.op_type != "LayerNormalization" or _has_statistics(norm):
                continue
            x, gamma = norm.inputs[:2]
            rank = len(norm.outputs[0].shape) if norm.outputs[0].shape is not None else 0
            if norm.attributes.get_int("axis", -1) not in {-1, rank - 1}:
                continue
            mean = ir.node("ReduceMean", [x, constant(graph, "last_axis", np.array([-1]))])
            centered = ir.node("Sub", [x, mean.outputs[0]])
            attributes = {"axis": -1, "epsilon": norm.attributes.get_float("epsilon", 1e-5)}
            new = [mean, centered, ir.node("SimplifiedLayerNormalization", [centered.outputs[0], gamma], attributes)]
            if len(norm.inputs) > 2 and norm.inputs[2] is not None:
                new.append(ir.node("Add", [new[-1].outputs[0], norm.inputs[2]]))
            replace(graph, (norm,), norm, new)
            changed = True
        return ir.passes.PassResult(model, modified=changed)


def _has_statistics(norm: ir.Node) -> bool:
    """Return whether the mean or the deviation is used."""
    return any(output.uses() or output.is_graph_output() for output in norm.outputs[1:])
