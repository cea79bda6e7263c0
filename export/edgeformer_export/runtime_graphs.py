"""Writes the small graphs that the runtime uses in addition to those of bundles.

Usage: ``python -m edgeformer_export.runtime_graphs``
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeformer_runtime.contract import DType
from edgeformer_runtime.engine.graphs import BEST_TOKENS, BEST_TOKENS_PADDED, INTEGER_PRODUCT, rows_graph


def runtime_graphs() -> Iterator[tuple[Path, onnx.ModelProto]]:
    """Yield every graph with the path that the runtime reads it from."""
    yield BEST_TOKENS, best_tokens(padded=False)
    yield BEST_TOKENS_PADDED, best_tokens(padded=True)
    yield INTEGER_PRODUCT, integer_product()
    for dtype in get_args(DType):
        yield rows_graph(dtype), rows(dtype)


def integer_product() -> onnx.ModelProto:
    """Build an integer matrix product: ``a (m, k)``, uint8, and ``b (k, n)``, int8, to ``y (m, n)``, int32."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "integer_product",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, ["m", "k"]),
            helper.make_tensor_value_info("b", TensorProto.INT8, ["k", "n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", "n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)


def rows(dtype: DType) -> onnx.ModelProto:
    """Build a row selection: from ``x`` of any shape and ``i (n,)``, int64, to ``y``, the rows ``i`` of ``x``."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "rows",
        [
            helper.make_tensor_value_info("x", kind, None),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["n"]),
        ],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _best_token_nodes(*, padded: bool) -> list[onnx.NodeProto]:
    """List the nodes of :func:`best_tokens`."""
    node = helper.make_node
    rows = "padded" if padded else "all"
    return [
        node("LogSoftmax", ["logits"], ["all"], axis=-1),
        node("Gather", ["all", "zero"], ["first"], axis=1),
        *([node("Pad", ["all", "padding", "nothing"], ["padded"])] if padded else []),
        node("Reshape", [rows, "chunks"], ["grid"]),
        # the maximum of each chunk plus the log-probability of its hypothesis: (N, K, chunks per row), flattened
        node("ReduceMax", ["grid", "two"], ["grid_max"], keepdims=0),
        node("Cast", ["grid_max"], ["peak"], to=TensorProto.DOUBLE),
        node("Shape", ["log_probability"], ["sentences_beams"]),
        node("Concat", ["sentences_beams", "rest"], ["peaks_shape"], axis=0),
        node("Reshape", ["peak", "peaks_shape"], ["peaks"]),
        node("Unsqueeze", ["log_probability", "two"], ["past"]),
        node("Add", ["peaks", "past"], ["peak_totals"]),
        node("Flatten", ["peak_totals"], ["peak_total"]),
        # the best chunks, in their original order
        node("TopK", ["peak_total", "count"], ["best_peak", "best_chunk"], axis=1),
        node("TopK", ["best_chunk", "count"], ["chunk", "rank"], axis=1, largest=0),
        # their contents: (N, count, size)
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
        # their positions among all extensions
        node("Shape", ["grid"], ["size"], start=2),
        node("Div", ["found", "size"], ["found_chunk"]),
        node("GatherElements", ["chunk", "found_chunk"], ["place_chunk"], axis=1),
        node("Mul", ["place_chunk", "size"], ["begin"]),
        node("Mod", ["found", "size"], ["offset"]),
        node("Add", ["begin", "offset"], ["place"]),
    ]


def best_tokens(*, padded: bool) -> onnx.ModelProto:
    """Build log-softmax followed by a search for the best extensions within the best chunks.

    The best ``count`` extensions are in the ``count`` chunks with the largest maxima. These chunks keep their original
    order, so that the first of several equal extensions wins.

    Inputs: ``logits (N * K, V)``; ``log_probability (N, K)``; ``chunks (3,)``: N, chunks per sentence, chunk size;
    ``count (1,)``; if padded, ``padding (4,)`` of the logits at the ends of their axes.

    Outputs: ``value (N, count)``; ``place (N, count)``, positions among a sentence's ``K * V`` extensions, padding
    included; ``first (N * K, 1)``, the first log-probability of each row, NaN if the row contains NaN or no finite
    value.
    """
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
        _best_token_nodes(padded=padded),
        "best_tokens",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


if __name__ == "__main__":
    for path, model in runtime_graphs():
        path.write_bytes(model.SerializeToString(deterministic=True))
