"""Integer matrix products, which saturate in the kernels for some processors."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime as ort

from edgeformer_runtime.engine.graphs import INTEGER_PRODUCT

EXACT_PRODUCTS = ("session.x64quantprecision", "1")
"""onnxruntime session entry that converts int8 weights to uint8 when a graph is opened, which selects kernels that are
exact on every x86 processor. Processors with VNNI instructions are exact without this entry and slower with it, so it
is set only if :func:`products_saturate` returns true."""


@cache
def products_saturate() -> bool:
    """Whether sums of products of uint8 activations and int8 weights saturate on this processor.

    x86 processors with AVX2 or AVX-512 but without VNNI add two such products in 16 bits, which ``2 * 255 * 127``
    overflows. Since the engine chooses the kernel, this function tests a product of the largest values. Takes about a
    millisecond, once per process.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(INTEGER_PRODUCT, options, providers=["CPUExecutionProvider"])
    a, b = np.full((2, 64), 255, np.uint8), np.full((64, 32), 127, np.int8)
    (product,) = session.run(None, {"a": a, "b": b})
    return not np.array_equal(product, a.astype(np.int32) @ b.astype(np.int32))
