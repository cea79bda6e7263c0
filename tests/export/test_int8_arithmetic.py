"""Products of uint8 activations and int8 weights are exact, on whatever processor this runs on."""

from __future__ import annotations

import platform
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.engines import onnx as onnx_engine
from edgeformer_runtime.engines import onnx_graphs
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.search.session import FloatArray
from tests.graphs import linear_model, quantized

KEY, _ = onnx_graphs.EXACT_PRODUCTS
RANGE = QuantizationRange(scale=1 / 255, zero_point=0)
WIDTH, OUT = 256, 96
OPERATORS = [
    ("MatMul", "ort", "MatMulIntegerToFloat"),
    ("Gemm", "ort", "QGemm"),
    ("MatMul", "portable", "MatMulInteger"),
]


def options(*, exact: bool) -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.log_severity_level = 3
    if exact:
        made.add_session_config_entry(*onnx_graphs.EXACT_PRODUCTS)
    return made


def extreme(op: str, target: Target, expected: str) -> tuple[bytes, NDArray[np.float32]]:
    """A quantized product with all weights at -127 or 127, and these weights as floats."""
    weight = np.where(np.arange(OUT) % 2, 1, -1).astype(np.float32)[None].repeat(WIDTH, axis=0)
    model = quantized(linear_model(weight, None, op), target=target, ranges=RANGE)
    assert expected in {node.op_type for node in model.graph}
    return ir.to_proto(model).SerializeToString(), weight


@pytest.mark.parametrize(("op", "target", "expected"), OPERATORS)
@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("exact", [None, True], ids=["as shipped", "exact products"])
def test_the_largest_numbers_do_not_saturate(
    op: str, target: Target, expected: str, rows: int, exact: bool | None
) -> None:
    model, weight = extreme(op, target, expected)
    is_exact = onnx_graphs.products_saturate() if exact is None else exact
    session = ort.InferenceSession(model, options(exact=is_exact), providers=["CPUExecutionProvider"])
    x = np.ones((rows, WIDTH), np.float32)  # 255 each
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight, rtol=1e-6)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors ignore the entry")
@pytest.mark.parametrize(("op", "target", "expected"), OPERATORS)
def test_the_entry_stores_the_weights_of_every_operator_as_uint8(
    op: str, target: Target, expected: str, tmp_path: Path
) -> None:
    """So that the next release of onnxruntime that leaves one out is noticed on any x86 machine."""
    model, _ = extreme(op, target, expected)
    types = {}
    for exact in (False, True):
        made = options(exact=exact)
        made.optimized_model_filepath = str(tmp_path / f"{exact}.onnx")
        made.log_severity_level = 4  # it warns that such a file suits this machine only
        ort.InferenceSession(model, made, providers=["CPUExecutionProvider"])
        weights = [
            tensor for tensor in onnx.load(tmp_path / f"{exact}.onnx").graph.initializer if len(tensor.dims) == 2
        ]
        types[exact] = [tensor.data_type for tensor in weights]
    assert types == {False: [TensorProto.INT8], True: [TensorProto.UINT8]}


@pytest.mark.parametrize("saturates", [False, True])
def test_an_int8_session_asks_for_exact_products_where_they_saturate(
    small_bundle_int8: Path, monkeypatch: pytest.MonkeyPatch, saturates: bool
) -> None:
    monkeypatch.setattr(onnx_engine, "products_saturate", lambda: saturates)
    with mock.patch.object(ort, "InferenceSession", wraps=ort.InferenceSession) as opened:
        OnnxSession(open_bundle(small_bundle_int8))
    for call in opened.call_args_list:
        if saturates:
            assert call.args[1].get_session_config_entry(KEY) == "1"
        else:
            with pytest.raises(RuntimeError, match=KEY):
                call.args[1].get_session_config_entry(KEY)
    assert opened.call_count >= 2


def test_both_kinds_of_kernel_give_the_same_logits(small_bundle_int8: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def logits(saturates: bool) -> FloatArray:
        monkeypatch.setattr(onnx_engine, "products_saturate", lambda: saturates)
        session = OnnxSession(open_bundle(small_bundle_int8), threads=1)
        source, length = np.array([[5, 6, 7, 3], [8, 3, 0, 0]]), np.array([4, 2])
        return session.start(source, length).step(np.array([2, 2]))

    # Where products do saturate, the first would be wrong.
    np.testing.assert_array_equal(logits(onnx_graphs.products_saturate()), logits(True))


def test_fp32_does_not_ask(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(onnx_engine, "products_saturate", fail)
    OnnxSession(open_bundle(small_bundle))
