"""What the processor's own kernels make of integer products, which is not the same everywhere."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime as ort

EXACT_PRODUCTS = ("session.x64quantprecision", "1")
"""onnxruntime's session entry that stores int8 weights as uint8 when it opens a graph, so that other kernels run: exact
on every x86 processor. It does so on processors with VNNI instructions too, which are exact without it, and makes them
slower; so it is set only where :func:`products_saturate`."""

# One node, MatMulInteger: a (m, k) uint8, b (k, n) int8 -> y (m, n) int32. Opset 10.
_PRODUCT = (
    b'\x08\x05:b\n\x18\n\x01a\n\x01b\x12\x01y"\rMatMulInteger\x12\x01g'
    b"Z\x15\n\x01a\x12\x10\n\x0e\x08\x02\x12\n\n\x03\x12\x01m\n\x03\x12\x01k"
    b"Z\x15\n\x01b\x12\x10\n\x0e\x08\x03\x12\n\n\x03\x12\x01k\n\x03\x12\x01n"
    b"b\x15\n\x01y\x12\x10\n\x0e\x08\x06\x12\n\n\x03\x12\x01m\n\x03\x12\x01nB\x04\n\x00\x10\n"
)


@cache
def products_saturate() -> bool:
    """Whether products of uint8 activations and int8 weights come out too small here.

    x86 processors with AVX2 or AVX-512 but without VNNI add two such products in 16 bits, where ``2 * 255 * 127`` does
    not fit. The engine chooses the kernel, so it is asked, with one product of the largest numbers. Takes about a
    millisecond, once in a process.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(_PRODUCT, options, providers=["CPUExecutionProvider"])
    a, b = np.full((2, 64), 255, np.uint8), np.full((64, 32), 127, np.int8)
    (product,) = session.run(None, {"a": a, "b": b})
    return not np.array_equal(product, a.astype(np.int32) @ b.astype(np.int32))
