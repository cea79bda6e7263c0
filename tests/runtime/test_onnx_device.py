"""Rows of tensors are picked where they are. The state made of it is tested beside that of the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import DType
from edgeformer_runtime.engine.device_state import DeviceRows, DeviceState
from edgeformer_runtime.engine.graphs import rows_graph
from edgeformer_runtime.errors import ModelError

DTYPES: tuple[DType, ...] = ("float32", "float16", "int32", "int64", "bool")


@pytest.fixture(scope="module")
def rows() -> DeviceRows:
    return DeviceRows(DTYPES, "cpu", ort.SessionOptions(), [("CPUExecutionProvider", {})])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_graph_has_the_type_it_was_asked_for(dtype: DType) -> None:
    graph = ort.InferenceSession(rows_graph(dtype), providers=["CPUExecutionProvider"])
    x, index = graph.get_inputs()
    (y,) = graph.get_outputs()
    name = {"float32": "float", "float16": "float16"}.get(dtype, dtype)
    assert (x.type, index.type, y.type) == (f"tensor({name})", "tensor(int64)", f"tensor({name})")


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
    with pytest.raises(ModelError, match=r"failed to move rows of the state: .*out of data bounds"):
        rows(value, "float32", np.array([7]))


def test_nothing_but_what_the_host_changes_is_bound_again(small_bundle: Path) -> None:
    """Without beams the cache indirection never changes, so it is not sent again."""
    table = open_bundle(small_bundle).manifest.state
    rows = DeviceRows({tensor.dtype for tensor in table}, "cpu", ort.SessionOptions(), [("CPUExecutionProvider", {})])

    class Recorder:
        def __init__(self) -> None:
            self.names: list[str] = []

        def bind_ortvalue_input(self, name: str, value: ort.OrtValue) -> None:
            self.names.append(name)

    for beams, expected in ((1, ["token", "position"]), (3, ["token", "position", "cache_indirection"])):
        emitted = {
            tensor.name: ort.OrtValue.ortvalue_from_numpy(
                np.zeros([2, *(size if isinstance(size, int) else 4 for size in tensor.axes[1:])], tensor.dtype)
            )
            for tensor in table
            if tensor.from_encoder
        }
        state = DeviceState(emitted, table, "cpu", rows=rows, sentences=2, max_length=9)
        state.select(np.arange(2).repeat(beams), None)
        whole, step = Recorder(), Recorder()
        state._bind_host(whole)
        state._feed(step)
        assert sorted(whole.names) == ["beam_width", "cache_indirection", "position", "token"]
        assert step.names == expected
