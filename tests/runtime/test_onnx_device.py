"""Rows of tensors are picked where they are. The state made of it is tested beside that of the CPU."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest

import edgeformer_runtime
from edgeformer_runtime.contract import DType, StateTensor
from edgeformer_runtime.engines.cuda import DeviceRows, DeviceTensors
from edgeformer_runtime.engines.onnx_graphs import StepGraph
from edgeformer_runtime.engines.onnx_state import OnnxState
from edgeformer_runtime.errors import ModelError

ROOT = Path(__file__).resolve().parents[2]
DTYPES: tuple[DType, ...] = ("float32", "float16", "int32", "int64", "bool")


@pytest.fixture(scope="module")
def rows() -> DeviceRows:
    return DeviceRows(DTYPES, "cpu", ort.SessionOptions(), [("CPUExecutionProvider", {})])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 0, 2), (5, 4, 3, 2)])
def test_rows_of_any_type_and_shape(rows: DeviceRows, dtype: DType, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    index = np.array([4, 0, 0, 3, 1, 2, 2])
    picked = rows(ort.OrtValue.ortvalue_from_numpy(array), dtype, index).numpy()
    assert picked.dtype == array.dtype
    np.testing.assert_array_equal(picked, array[index])


def test_a_failure_is_named(rows: DeviceRows) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    with pytest.raises(ModelError, match=r"failed in `rows_float32.onnx`: .*out of data bounds"):
        rows(value, "float32", np.array([7]))


def test_no_session_falls_back_to_the_cpu_where_its_device_fails() -> None:
    calls = [
        ast.unparse(call)
        for path in Path(edgeformer_runtime.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("InferenceSession")
    ]
    assert len(calls) >= 4
    for call in calls:
        assert "enable_fallback=0" in call or "providers=['CPUExecutionProvider']" in call


class RecordingGraph:
    """A graph that runs nothing, and records which inputs are bound in each run; it is its own binding."""

    def __init__(self) -> None:
        self.bound: list[list[str]] = [[]]

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="past.key")]

    def get_outputs(self) -> list[object]:
        return []

    def io_binding(self) -> RecordingGraph:
        return self

    def bind_ortvalue_input(self, name: str, value: ort.OrtValue) -> None:
        self.bound[-1].append(name)

    def run_with_iobinding(self, binding: RecordingGraph) -> None:
        self.bound.append([])


@pytest.mark.parametrize(
    ("beams", "expected"), [(1, ["token", "position"]), (3, ["token", "position", "cache_indirection"])]
)
def test_a_step_sends_only_what_the_host_changes(beams: int, expected: list[str], rows: DeviceRows) -> None:
    """Without beams the cache indirection never changes, so it is not sent again."""
    table = (StateTensor(name="key", kind="cache", dtype="float32", axes=("R", 2, "T", 4)),)
    graph = RecordingGraph()
    decoder = StepGraph("decoder.onnx", graph, "logits", 5)
    tensors = DeviceTensors({}, table, "cpu", rows=rows, sentences=2, max_length=9)
    state = OnnxState(tensors, decoder, lambda: decoder, 3)
    state.select(np.arange(2).repeat(beams), None)
    for _ in range(2):
        state.step(np.full(2 * beams, 7))
    first, second, _ = graph.bound
    assert first == ["token", "position", "cache_indirection", "beam_width", "past.key", *expected]
    assert second == expected
