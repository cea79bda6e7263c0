"""Writes the small graphs with which the runtime picks the most probable extensions of hypotheses.

Usage: ``python -m tests.make_best_tokens``, from the root of the repository
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeformer_runtime.engine.onnx_best_tokens import GRAPH_FILE, PADDED_GRAPH_FILE


def graph(*, padded: bool) -> onnx.ModelProto:
    """Log-softmax, then the best extensions, found by way of the best chunks.

    The best ``count`` extensions stand in the ``count`` chunks with the largest maxima. Those are taken in the order in
    which they stand, so that of equal extensions the first one wins.

    Inputs: ``logits (N * K, V)``; ``log_probability (N, K)``; ``chunks (3,)``: N, chunks of a sentence, size of a
    chunk; ``count (1,)``; if padded, ``padding (4,)`` of the logits at the ends of their axes.

    Outputs: ``value (N, count)``; ``place (N, count)`` among a sentence's ``K * V`` extensions, padding included;
    ``first (N * K, 1)``, the first log-probability of each row, NaN if the row holds one or holds nothing finite.
    """
    node = helper.make_node
    rows = "padded" if padded else "all"
    nodes = [
        node("LogSoftmax", ["logits"], ["all"], axis=-1),
        node("Gather", ["all", "zero"], ["first"], axis=1),
        *([node("Pad", ["all", "padding", "nothing"], ["padded"])] if padded else []),
        node("Reshape", [rows, "chunks"], ["grid"]),
        # the largest of each chunk, with the log-probability of its hypothesis: (N, K, chunks of a row), made flat
        node("ReduceMax", ["grid", "two"], ["grid_max"], keepdims=0),
        node("Cast", ["grid_max"], ["peak"], to=TensorProto.DOUBLE),
        node("Shape", ["log_probability"], ["sentences_beams"]),
        node("Concat", ["sentences_beams", "rest"], ["peaks_shape"], axis=0),
        node("Reshape", ["peak", "peaks_shape"], ["peaks"]),
        node("Unsqueeze", ["log_probability", "two"], ["past"]),
        node("Add", ["peaks", "past"], ["peak_totals"]),
        node("Flatten", ["peak_totals"], ["peak_total"]),
        # the best chunks, in the order in which they stand
        node("TopK", ["peak_total", "count"], ["best_peak", "best_chunk"], axis=1),
        node("TopK", ["best_chunk", "count"], ["chunk", "rank"], axis=1, largest=0),
        # what is in them: (N, count, size)
        node("Unsqueeze", ["chunk", "two"], ["chunk_index"]),
        node("GatherND", ["grid", "chunk_index"], ["inside"], batch_dims=1),
        node("Cast", ["inside"], ["inside_double"], to=TensorProto.DOUBLE),
        node("Shape", ["peaks"], ["row_chunks"], start=2),
        node("Div", ["chunk", "row_chunks"], ["beam"]),
        node("GatherElements", ["log_probability", "beam"], ["beam_past"], axis=1),
        node("Unsqueeze", ["beam_past", "two"], ["chunk_past"]),
        node("Add", ["inside_double", "chunk_past"], ["totals"]),
        node("Flatten", ["totals"], ["total"]),
        node("TopK", ["total", "count"], ["value", "found"], axis=1),
        # where that is among all extensions
        node("Shape", ["grid"], ["size"], start=2),
        node("Div", ["found", "size"], ["found_chunk"]),
        node("GatherElements", ["chunk", "found_chunk"], ["place_chunk"], axis=1),
        node("Mul", ["place_chunk", "size"], ["begin"]),
        node("Mod", ["found", "size"], ["offset"]),
        node("Add", ["begin", "offset"], ["place"]),
    ]
    constants = {"zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1])}
    inputs: list[tuple[str, int, list[str | int]]] = [
        ("logits", TensorProto.FLOAT, ["R", "V"]),
        ("log_probability", TensorProto.DOUBLE, ["N", "K"]),
        ("chunks", TensorProto.INT64, [3]),
        ("count", TensorProto.INT64, [1]),
    ]
    if padded:
        constants["nothing"] = np.array(-np.inf, np.float32)
        inputs.append(("padding", TensorProto.INT64, [4]))
    outputs: list[tuple[str, int, list[str | int]]] = [
        ("value", TensorProto.DOUBLE, ["N", "count"]),
        ("place", TensorProto.INT64, ["N", "count"]),
        ("first", TensorProto.FLOAT, ["R", 1]),
    ]
    made = helper.make_graph(
        nodes,
        "best_tokens",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


if __name__ == "__main__":
    GRAPH_FILE.write_bytes(graph(padded=False).SerializeToString(deterministic=True))
    PADDED_GRAPH_FILE.write_bytes(graph(padded=True).SerializeToString(deterministic=True))
