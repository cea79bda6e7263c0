"""Writes the small graph with which the runtime picks tokens: log-softmax, then the largest ones.

Usage: ``python -m tests.make_best_tokens``, from the root of the repository
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from edgeformer_runtime.onnx_best_tokens import GRAPH_FILE


def graph() -> onnx.ModelProto:
    """``logits (R, V), count (1,) -> log_probability (R, count), token (R, count)``."""
    nodes = [
        helper.make_node("LogSoftmax", ["logits"], ["all"], axis=-1),
        helper.make_node("TopK", ["all", "count"], ["log_probability", "token"], axis=-1),
    ]
    inputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["R", "V"]),
        helper.make_tensor_value_info("count", TensorProto.INT64, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("log_probability", TensorProto.FLOAT, ["R", "count"]),
        helper.make_tensor_value_info("token", TensorProto.INT64, ["R", "count"]),
    ]
    made = helper.make_graph(nodes, "best_tokens", inputs, outputs)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


if __name__ == "__main__":
    GRAPH_FILE.write_bytes(graph().SerializeToString(deterministic=True))
