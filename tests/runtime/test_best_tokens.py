"""The most probable tokens of each row, by numpy and by the engine, against float64 and a stable sort."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer_runtime.best_tokens import best_tokens, largest, log_sum_exp
from edgeformer_runtime.onnx_best_tokens import GRAPH_FILE, OnnxBestTokens
from edgeformer_runtime.search import BestTokens
from edgeformer_runtime.session import FloatArray
from tests.make_best_tokens import graph

WIDTHS = [1, 2, 5, 6, 31, 32, 33, 63, 64, 65, 127, 128, 320, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 6000]
"""Around the widths from which rows are taken in chunks, and around one, two and many chunks."""
FEW = settings(max_examples=200, deadline=None, derandomize=True)

Case = tuple[FloatArray, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Logits, with few ties or with many, some of them forbidden, and how many are wanted.

    They are multiples of 1/8, so that different ones stay different when they are rounded to log-probabilities.
    """
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    rows, width = draw(st.integers(1, 6)), draw(st.sampled_from(WIDTHS) | st.integers(1, 6000))
    levels = draw(st.sampled_from([1, 2, 5, 150]))
    logits = (random.integers(-levels, levels, (rows, width), endpoint=True) / 8).astype(np.float32)
    forbidden = draw(st.sampled_from([0.0, 0.5, 0.99, 1.0]))
    logits[random.random((rows, width)) < forbidden] = -np.inf
    logits[np.arange(rows), random.integers(0, width, rows)] = random.integers(-8, 8, rows)
    return logits, draw(st.sampled_from([1, 2, 8, 10]) | st.integers(1, width + 3))


@pytest.fixture(scope="module")
def engine() -> OnnxBestTokens:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return OnnxBestTokens(options)


@pytest.fixture(scope="module", params=["numpy", "engine"])
def pick(request: pytest.FixtureRequest, engine: OnnxBestTokens) -> BestTokens:
    return best_tokens if request.param == "numpy" else engine


@FEW
@given(cases())
def test_largest_is_the_beginning_of_a_stable_sort(case: Case) -> None:
    logits, count = case
    logits += np.float32(0.1)  # exact values: here nothing is rounded
    given = logits.copy()
    best, position = largest(logits, count)
    expected = np.argsort(-given, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(position, expected)
    np.testing.assert_array_equal(best, np.take_along_axis(given, expected, axis=1))


@FEW
@given(cases(), st.sampled_from([1.0, 30.0, 1e4]))
def test_log_sum_exp_is_that_of_float64(case: Case, size: float) -> None:
    logits = case[0] * np.float32(size)
    peak = logits.max(axis=1, keepdims=True)
    expected = np.log(np.exp(logits.astype(np.float64) - peak).sum(axis=1, keepdims=True)) + peak
    found = log_sum_exp(logits, peak)
    assert found.shape == peak.shape
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@FEW
@given(case=cases())
def test_best_tokens_are_those_of_float64(pick: BestTokens, case: Case) -> None:
    logits, count = case
    exact = logits.astype(np.float64)
    peak = exact.max(axis=1, keepdims=True)
    exact -= peak + np.log(np.exp(exact - peak).sum(axis=1, keepdims=True))
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :count]
    value, token = pick(logits, count)
    assert value.dtype == np.float32
    assert token.dtype == np.int64
    np.testing.assert_array_equal(token, expected)
    np.testing.assert_allclose(value, np.take_along_axis(exact, expected, axis=1), rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_row_that_holds_no_number_has_no_finite_best(pick: BestTokens, width: int, count: int) -> None:
    """Wherever it stands; the search then refuses the row."""
    for value in (np.nan, np.inf):
        for place in {0, width // 3, width // 2, width - 1}:
            logits = np.random.default_rng(0).normal(size=(3, width)).astype(np.float32)
            logits[1, place] = value
            assert not np.isfinite(pick(logits, count)[0][1, 0]), (value, place)
    logits = np.zeros((3, width), np.float32)
    logits[2] = -np.inf
    assert not np.isfinite(pick(logits, count)[0][2, 0])


def test_the_engine_leaves_the_logits_as_they_are(engine: OnnxBestTokens) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 700)).astype(np.float32)
    given = logits.copy()
    engine(logits, 5)
    np.testing.assert_array_equal(logits, given)


def test_the_stored_graph_is_the_one_that_the_script_makes() -> None:
    stored = onnx.load(GRAPH_FILE)
    onnx.checker.check_model(stored)
    assert stored == graph()
