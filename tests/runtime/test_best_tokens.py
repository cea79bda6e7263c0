"""The most probable extensions of hypotheses, by numpy and by the engine, against float64 and a stable sort."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeformer_runtime.engines import best_tokens as engine_best_tokens
from edgeformer_runtime.engines.best_tokens import OnnxBestTokens, chunking, graphs_on_demand
from edgeformer_runtime.search.best_tokens import best_tokens, log_sum_exp
from edgeformer_runtime.search.session import BestTokens, FloatArray
from tests.amounts import combinations, examples

WIDTHS = [1, 2, 5, 6, 31, 32, 33, 63, 64, 65, 127, 128, 320, 1023, 1024, 1025, 2048, 4093, 4096, 4097, 6000]
"""Around the widths from which rows are taken in chunks, around one, two and many chunks, and primes."""
FEW = examples(60, 200, derandomize=True)

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


@pytest.fixture(scope="module", params=["chunks", "whole rows"])
def engine(request: pytest.FixtureRequest) -> Iterator[OnnxBestTokens]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_best_tokens, "WHOLE", 0 if request.param == "chunks" else 10**6)
        yield OnnxBestTokens(graphs_on_demand(options))


@pytest.fixture(scope="module", params=["numpy", "engine"])
def pick(request: pytest.FixtureRequest, engine: OnnxBestTokens) -> BestTokens:
    return best_tokens if request.param == "numpy" else engine


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
@given(case=cases(), beams=st.integers(1, 3), seed=st.integers(0, 10**6), started=st.booleans())
def test_best_extensions_are_those_of_float64(
    pick: BestTokens, case: Case, beams: int, seed: int, started: bool
) -> None:
    logits, count = case
    logits = np.ascontiguousarray(logits[: max(1, len(logits) // beams) * beams])
    beams = beams if len(logits) % beams == 0 else 1
    vocab_size = logits.shape[1]
    past = np.random.default_rng(seed).integers(-40, 0, (len(logits) // beams, beams)) / 8 + 0.03
    if not started:
        past[:, 1:] = -np.inf
    exact = (past.reshape(-1, 1) + exact_log_softmax(logits)).reshape(len(past), -1)
    expected = -np.sort(-exact, axis=1)[:, :count]
    value, token, parent = pick(logits, past, count)
    assert [str(array.dtype) for array in (value, token, parent)] == ["float64", "int64", "int64"]
    assert value.shape == token.shape == parent.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=2e-6, atol=6e-6)
    possible = np.isfinite(value)
    place = parent * vocab_size + token
    np.testing.assert_allclose(np.take_along_axis(exact, place, axis=1), value, rtol=2e-6, atol=6e-6)
    assert token.min() >= 0
    assert token.max() < vocab_size
    for row, places in enumerate(place):
        chosen = places[possible[row]]
        assert len(set(chosen.tolist())) == len(chosen)
        # of equal ones, the first hypothesis and the lowest token
        same = np.diff(value[row][possible[row]]) == 0
        assert (np.diff(chosen)[same] > 0).all()


@combinations(width=WIDTHS, count=[1, 2, 8])
def test_a_sentence_with_a_row_that_holds_no_number_has_no_best(pick: BestTokens, width: int, count: int) -> None:
    """Wherever it stands; the search then refuses the row, and the other sentences are as they are."""
    past = np.array([[-1.0, -2.0], [-1.0, -2.0]])
    for value in (np.nan, np.inf, None):
        for place in {0, width // 3, width // 2, width - 1}:
            logits = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
            if value is None:
                logits[3] = -np.inf
            else:
                logits[3, place] = value
            found = pick(logits, past, count)[0]
            assert np.isnan(found[1]).all(), (value, place)
            assert np.isfinite(found[0]).all(), (value, place)


@pytest.mark.parametrize("width", [700, 4093])
def test_the_engine_leaves_the_logits_as_they_are(engine: OnnxBestTokens, width: int) -> None:
    logits = np.random.default_rng(0).normal(size=(4, width)).astype(np.float32)
    original = logits.copy()
    engine(logits, np.zeros((1, 4)), 5)
    np.testing.assert_array_equal(logits, original)


@pytest.mark.parametrize("sentences", [1, 5, 8])
@pytest.mark.parametrize("block", [1, 3, 4])
def test_blocks_of_rows_give_what_all_together_give(
    engine: OnnxBestTokens, monkeypatch: pytest.MonkeyPatch, sentences: int, block: int
) -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(sentences * 3, 500)).astype(np.float32)
    log_probability = -random.random((sentences, 3))
    whole = engine(logits, log_probability, 6)
    monkeypatch.setattr(engine_best_tokens, "CACHED", block * logits[0].size + 1)
    for part, reference in zip(whole, engine(logits.copy(), log_probability, 6), strict=True):
        assert np.array_equal(part, reference)


def test_logits_are_read_again_in_every_step(engine: OnnxBestTokens) -> None:
    random = np.random.default_rng(0)
    logits = np.empty((4, 500), np.float32)
    for _ in range(3):
        logits[:] = random.normal(size=logits.shape)
        _, token, parent = engine(logits, np.zeros((1, 4)), 1)
        assert logits[parent[0, 0], token[0, 0]] - np.log(np.exp(logits[parent[0, 0]]).sum()) == pytest.approx(
            (logits.max(axis=1) - np.log(np.exp(logits).sum(axis=1))).max(), abs=1e-5
        )


@given(st.integers(1, 6000), st.integers(1, 3000))
def test_rows_are_cut_into_chunks_of_one_size(vocab_size: int, most: int) -> None:
    size, width = chunking(vocab_size, most)
    assert 1 <= size <= most
    assert width % size == 0
    assert vocab_size <= width < vocab_size + size


def exact_log_softmax(logits: FloatArray) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    peak = exact.max(axis=1, keepdims=True)
    exact -= peak + np.log(np.exp(exact - peak).sum(axis=1, keepdims=True))
    return exact
