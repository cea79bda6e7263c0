"""The session on ONNX Runtime: shapes of the state, reordering, dropping, devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from edgeformer_runtime.bundle import open_bundle
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.errors import BundleError, DeviceError
from edgeformer_runtime.onnx_session import OnnxSession, OnnxState, available_cpus
from edgeformer_runtime.session import IntArray
from edgeformer_runtime.translator import Translator

SOURCE = np.array([[5, 6, 7, 3], [8, 3, 0, 0], [9, 10, 3, 0]], dtype=np.int64)
LENGTH = np.array([4, 2, 3], dtype=np.int64)
BEAMS = 2


def arrays(state: OnnxState) -> dict[str, NDArray[np.generic]]:
    return {name: np.array(value.numpy()) for name, value in state.tensors.items()}


def advanced(session: OnnxSession) -> tuple[OnnxState, IntArray]:
    """A state after two tokens, different in every row, and the next tokens."""
    state = session.start(SOURCE, LENGTH, BEAMS)
    for position, first in enumerate((2, 20)):
        token = np.arange(first, first + len(SOURCE) * BEAMS, dtype=np.int64) if position else np.full(6, first)
        _, state = session.step(token, position, state)
    return state, np.arange(30, 36, dtype=np.int64)


def test_shapes_follow_the_state_table(translator: Translator) -> None:
    session, manifest = translator.session, translator.bundle.manifest
    state, _ = advanced(session)
    sizes = {"N": 3, "R": 6, "S": 4, "P": 2}
    for tensor in manifest.state:
        expected = tuple(sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes)
        assert arrays(state)[tensor.name].shape == expected, tensor.name
        assert str(arrays(state)[tensor.name].dtype) == tensor.dtype
    assert state.nbytes == sum(array.nbytes for array in arrays(state).values())
    start = session.start(SOURCE, LENGTH, BEAMS)
    logits, _ = session.step(np.full(6, 2), 0, start)
    assert logits.shape == (6, manifest.target_vocab_size)
    assert logits.dtype == np.float32


def test_selecting_rows_leaves_constants_untouched(translator: Translator) -> None:
    state, _ = advanced(translator.session)
    before = arrays(state)
    rows = np.array([1, 1, 2, 3, 5, 4])
    selected = state.select(rows, None)
    for tensor in translator.bundle.manifest.state:
        if tensor.kind == "constant":
            assert selected.tensors[tensor.name] is state.tensors[tensor.name], "a constant must not be copied"
        else:
            np.testing.assert_array_equal(selected.tensors[tensor.name].numpy(), before[tensor.name][rows])
    for name, array in arrays(state).items():
        np.testing.assert_array_equal(array, before[name], err_msg="the state selected from must stay as it was")


def test_selecting_sentences_drops_them_from_every_tensor(translator: Translator) -> None:
    state, _ = advanced(translator.session)
    before = arrays(state)
    rows, sentences = np.array([5, 4, 0, 0]), np.array([2, 0])
    selected = state.select(rows, sentences)
    for tensor in translator.bundle.manifest.state:
        index = sentences if tensor.axes[0] == "N" else rows
        np.testing.assert_array_equal(selected.tensors[tensor.name].numpy(), before[tensor.name][index])
    assert selected.nbytes == sum(array.nbytes for array in arrays(selected).values()) < state.nbytes


def test_every_kind_of_tensor_is_selected_by_its_first_axis() -> None:
    """A constant may be repeated per row: its rows of one sentence are equal, so reordering them changes nothing."""
    table = (
        StateTensor(name="memory", kind="constant", dtype="float32", axes=("N", "S")),
        StateTensor(name="bias", kind="constant", dtype="float32", axes=("R", 1)),
        StateTensor(name="key", kind="cache", dtype="float32", axes=("R", "P")),
        StateTensor(name="hidden", kind="recurrent", dtype="float32", axes=("R", 2)),
    )
    values = {
        "memory": np.arange(4, dtype=np.float32).reshape(2, 2),
        "bias": np.array([[7], [7], [8], [8]], dtype=np.float32),
        "key": np.arange(12, dtype=np.float32).reshape(4, 3),
        "hidden": np.arange(8, dtype=np.float32).reshape(4, 2),
    }
    tensors = {name: ort.OrtValue.ortvalue_from_numpy(array, "cpu") for name, array in values.items()}
    state = OnnxState(tensors, table, "cpu")

    rows = np.array([1, 0, 3, 3])
    reordered = state.select(rows, None)
    for name in ("memory", "bias"):
        assert reordered.tensors[name] is tensors[name]
    for name in ("key", "hidden"):
        np.testing.assert_array_equal(reordered.tensors[name].numpy(), values[name][rows])

    rows, sentences = np.array([3, 2]), np.array([1])
    dropped = arrays(state.select(rows, sentences))
    np.testing.assert_array_equal(dropped["memory"], values["memory"][sentences])
    for name in ("bias", "key", "hidden"):
        np.testing.assert_array_equal(dropped[name], values[name][rows])


def test_a_selected_state_continues_as_the_rows_it_came_from(translator: Translator) -> None:
    session = translator.session
    state, token = advanced(session)
    expected, _ = session.step(token, 2, state)
    rows, sentences = np.array([3, 2, 5, 4]), np.array([1, 2])
    found, _ = session.step(token[rows], 2, state.select(rows, sentences))
    np.testing.assert_allclose(found, expected[rows], atol=1e-5)


def test_padding_changes_no_logit(translator: Translator) -> None:
    session = translator.session
    together, _ = session.step(np.full(3, 2), 0, session.start(SOURCE, LENGTH, 1))
    for row, length in enumerate(LENGTH):
        start = session.start(SOURCE[row : row + 1, :length], LENGTH[row : row + 1], 1)
        alone, _ = session.step(np.full(1, 2), 0, start)
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)


def test_logits_outlive_the_step_and_may_be_changed(translator: Translator) -> None:
    session = translator.session
    start = session.start(SOURCE, LENGTH, 1)
    logits, state = session.step(np.full(3, 2), 0, start)
    copy = logits.copy()
    del start
    for position in range(1, 8):
        _, state = session.step(np.full(3, 9), position, state)
    np.testing.assert_array_equal(logits, copy)
    logits[:] = -np.inf
    again, _ = session.step(np.full(3, 2), 0, session.start(SOURCE, LENGTH, 1))
    np.testing.assert_array_equal(again, copy)


def test_an_unknown_device_is_named(small_bundle: Path) -> None:
    with pytest.raises(DeviceError, match="`device` must be one of cpu, cuda, but is `tpu`"):
        Translator(small_bundle, device="tpu")


def test_a_missing_provider_is_an_error_with_the_pip_line(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(DeviceError, match=r"CUDAExecutionProvider.*pip install 'edgeformer\[gpu\]'"):
        Translator(small_bundle, device="cuda")


def test_a_provider_that_does_not_start_is_an_error(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime falls back to the CPU without a word; the session must not."""
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    opened = ort.InferenceSession

    def fall_back(path: Path, options: ort.SessionOptions, providers: list[str]) -> ort.InferenceSession:
        assert providers == ["CUDAExecutionProvider"]
        return opened(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(ort, "InferenceSession", fall_back)
    with pytest.raises(DeviceError, match="could not be started"):
        Translator(small_bundle, device="cuda")


def test_a_graph_that_onnxruntime_refuses_is_named(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(ort, "InferenceSession", refuse)
    with pytest.raises(BundleError, match=r"cannot open `encoder\.onnx`: no such operator"):
        OnnxSession(open_bundle(small_bundle))


def test_at_least_one_cpu_is_available() -> None:
    assert available_cpus() >= 1
