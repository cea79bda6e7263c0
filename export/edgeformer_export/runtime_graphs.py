"""Writes the small graphs that the runtime uses in addition to those of bundles.

Usage: ``python -m edgeformer_export.runtime_graphs``
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
from onnx import numpy_helper, parser

from edgeformer_runtime.contract import DType
from edgeformer_runtime.engines.graphs import (
    BEST_TOKENS,
    BEST_TOKENS_CHUNKED,
    BEST_TOKENS_PADDED,
    INTEGER_PRODUCT,
    rows_graph,
)

_WHOLE = "row_value, found = TopK (all, row_count)"
_CHUNKED = """
    grid = Reshape ({rows}, chunks)
    peak = ReduceMax <keepdims = 0> (grid, two)
    # the best chunks of each row, in their original order, so that the first of several equal tokens wins
    best_peak, best_chunk = TopK <axis = 1> (peak, chunk_count)
    chunk, rank = TopK <axis = 1, largest = 0> (best_chunk, chunk_count)
    # their contents: (R, chunk_count, size)
    chunk_index = Unsqueeze (chunk, two)
    inside = GatherND <batch_dims = 1> (grid, chunk_index)
    candidates = Flatten (inside)
    row_value, found = TopK <axis = 1> (candidates, row_count)
"""
"""The best ``row_count`` tokens of each row, which are in the ``row_count`` chunks with the largest maxima."""
_TOKENS = """
    rank_of_chunk = Div (place, size)
    first_chunk = Mul (parent, chunk_count)
    chunk_place = Add (first_chunk, rank_of_chunk)
    chunk_of_sentence = Reshape (chunk, by_sentence)
    chunk_number = GatherElements <axis = 1> (chunk_of_sentence, chunk_place)
    # place in the chunk + chunk * size, where the place in the chunk is place - rank_of_chunk * size
    moved = Sub (chunk_number, rank_of_chunk)
    offset = Mul (moved, size)
    {token} = Add (place, offset)
"""
"""Tokens, from positions ``place`` among the contents of the chunks scanned."""


def runtime_graphs() -> Iterator[tuple[Path, onnx.ModelProto]]:
    """Yield every graph with the path that the runtime reads it from."""
    yield BEST_TOKENS, best_tokens()
    yield BEST_TOKENS_CHUNKED, best_tokens(chunked=True)
    yield BEST_TOKENS_PADDED, best_tokens(chunked=True, padded=True)
    product = "integer_product (uint8[m, k] a, int8[k, n] b) => (int32[m, n] y) { y = MatMulInteger (a, b) }"
    yield INTEGER_PRODUCT, _model(product, opset=10, ir_version=5)
    for dtype in get_args(DType):
        kind = {"float32": "float"}.get(dtype, dtype)
        rows = f"rows ({kind}[] x, int64[n] i) => ({kind}[] y) {{ y = Gather (x, i) }}"  # x of any shape
        yield rows_graph(dtype), _model(rows, opset=13, ir_version=8)


def best_tokens(*, chunked: bool = False, padded: bool = False) -> onnx.ModelProto:
    """Build log-softmax followed by a search for the most probable extensions of each sentence's hypotheses.

    Inputs: ``logits (R, V)``, of N sentences with K rows each; ``log_probability (R, 1)``, float64, of each hypothesis;
    ``row_count (1,)``: number of tokens to find in each row; ``count (1,)``: number of extensions of each sentence;
    ``by_sentence (2,)``: N and -1.

    If chunked, each row is searched within its best chunks only, and there are three more inputs: ``chunks (3,)``: R,
    chunks per row, chunk size; ``size (1,)``: chunk size; ``chunk_count (1,)``: number of chunks to scan, the smaller
    of ``row_count`` and the chunks per row. If padded, also ``padding (4,)`` of the logits at the ends of their axes,
    and ``last_token (1,)``, V - 1. Padding has probability 0, so it is found only if no other token is left.

    Outputs: ``row_value (R, row_count)``, log-probabilities of the tokens of each row, NaN if it contains NaN or no
    finite value; ``value (N, count)``, float64, log-probabilities of the extensions, best first; ``token (N, count)``
    and ``parent (N, count)``, the hypothesis that each extends, from 0 to K - 1.
    """
    inputs = "float[R, V] logits, double[R, 1] log_probability, int64[1] row_count, int64[1] count"
    inputs += ", int64[2] by_sentence" + ", int64[3] chunks, int64[1] size, int64[1] chunk_count" * chunked
    inputs += ", int64[4] padding, int64[1] last_token" * padded
    found = _CHUNKED.format(rows="padded" if padded else "all") if chunked else _WHOLE
    tokens = _TOKENS.format(token="token_or_padding" if padded else "token") if chunked else ""
    text = f"""best_tokens ({inputs}) => (
        float[R, row_count] row_value, double[N, count] value, int64[N, count] token, int64[N, count] parent
    ) {{
        all = LogSoftmax <axis = -1> (logits)
        {"padded = Pad (all, padding, nothing)" if padded else ""}
        {found}
        row_value_64 = Cast <to = {onnx.TensorProto.DOUBLE}> (row_value)
        total = Add (log_probability, row_value_64)
        total_of_sentence = Reshape (total, by_sentence)
        value, index = TopK <axis = 1> (total_of_sentence, count)
        parent = Div (index, row_count)
        found_of_sentence = Reshape (found, by_sentence)
        {"place" if chunked else "token"} = GatherElements <axis = 1> (found_of_sentence, index)
        {tokens}
        {"token = Min (token_or_padding, last_token)" if padded else ""}
    }}"""
    model = _model(text, opset=18, ir_version=8)
    constants = {"two": np.array([2])} if chunked else {}
    constants |= {"nothing": np.array(-np.inf, np.float32)} if padded else {}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def _model(graph: str, *, opset: int, ir_version: int) -> onnx.ModelProto:
    """Parse a graph in ONNX's own notation."""
    model = parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {graph}')
    for node in model.graph.node:
        node.ClearField("domain")  # the standard's is none
    return model


if __name__ == "__main__":
    for path, model in runtime_graphs():
        path.write_bytes(model.SerializeToString(deterministic=True))
