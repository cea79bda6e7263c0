"""Guards against output that is too long or repeats itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.repeats import MAX_NGRAM, ends_in_repeats
from tests.runtime.test_search import FEW, MODELS, SOURCES
from tests.toy import Ids, ToySession


@pytest.mark.parametrize(
    ("row", "count", "expected"),
    [
        ([5, 5], 2, True),
        ([5, 5], 3, False),
        ([5, 5, 6], 2, False),
        ([1, 5, 6, 5, 6], 2, True),
        ([1, 5, 6, 5, 6], 3, False),
        ([5, 6, 5, 6, 5, 6], 3, True),
        ([5, 6, 7, 5, 6], 2, False),
        ([], 2, False),
        ([*range(MAX_NGRAM)] * 2, 2, True),
        ([*range(MAX_NGRAM + 1)] * 2, 2, False),
    ],
)
def test_repeats(row: list[int], count: int, expected: bool) -> None:
    rows = np.array([row, range(100, 100 + len(row))], dtype=np.int64)
    assert ends_in_repeats(rows, count).tolist() == [expected, False]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_loop_is_stopped_unfinished(beam_size: int) -> None:
    session = ToySession(
        vocab_size=6, end_bias=-50.0, max_target_length=40
    )  # two tokens are left, so that loops abound
    sources = [(4,), (5, 4), (5, 5, 5)]
    options = DecodeOptions(beam_size=beam_size, n_best=beam_size, max_ngram_repeats=3)
    for hypotheses, alone in zip(
        decode(session, sources, options), [decode(session, [source], options)[0] for source in sources], strict=True
    ):
        assert hypotheses == alone
        assert len(hypotheses) == beam_size
        for hypothesis in hypotheses:
            assert not hypothesis.finished
            history = np.array([hypothesis.ids])
            assert len(hypothesis.ids) == 40 or ends_in_repeats(history, 3)[0]
            assert not any(ends_in_repeats(history[:, :length], 3)[0] for length in range(len(hypothesis.ids)))
    assert len(decode(session, sources[:1], replace(options, max_ngram_repeats=0))[0][0].ids) == 40


@FEW
@given(
    MODELS,
    st.lists(SOURCES, min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.integers(0, 5),
)
def test_length_is_limited_in_proportion_to_the_source(
    session: ToySession, sources: list[Ids], beam_size: int, a: float, b: int
) -> None:
    options = DecodeOptions(beam_size=beam_size, max_len_a=a, max_len_b=b, n_best=beam_size)
    for source, hypotheses in zip(sources, decode(session, sources, options), strict=True):
        limit = max(1, int(a * len(source)) + b) if a or b else session.max_target_length
        limit = min(limit, session.max_target_length)
        assert (
            hypotheses == decode(session, [source], replace(options, max_len_a=0.0, max_len_b=0, max_length=limit))[0]
        )
