"""Logits processors, each alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.processors import (
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    Suppress,
    SuppressSequences,
    build_processors,
)
from edgeformer_runtime.search.session import FloatArray, IntArray
from tests.toy import ToySession

VOCAB = 6


NOTHING = np.empty((1, 0), dtype=np.int64)


def history(*rows: list[int]) -> IntArray:
    return np.array(rows, dtype=np.int64)


def logits(rows: int = 1) -> FloatArray:
    return np.tile(np.array([1.0, -1.0, 2.0, -2.0, 0.0, 3.0], dtype=np.float32), (rows, 1))


def forbidden(values: FloatArray) -> list[list[int]]:
    return [np.flatnonzero(np.isneginf(row)).tolist() for row in values]


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 2.5]), min_size=VOCAB, max_size=VOCAB),
    st.integers(0, VOCAB - 1),
)
def test_no_processor_allows_what_another_forbade(row: list[float], token: int) -> None:
    values = np.array([row], np.float32)
    values[0, (token + 1) % VOCAB] = 1.0
    before = np.isneginf(values)
    for processor in (
        RepetitionPenalty(1.5),
        NoRepeatNgram(2),
        MinLength(0, 3),
        SuppressSequences([[token]]),
        Suppress([token]),
    ):
        processor(NOTHING, values)
        assert np.isneginf(values)[before].all(), processor


def test_suppress() -> None:
    values = logits(2)
    Suppress([4, 0, 4])(history([1], [2]), values)
    assert forbidden(values) == [[0, 4], [0, 4]]
    np.testing.assert_array_equal(values[:, [1, 2, 3, 5]], logits(2)[:, [1, 2, 3, 5]])


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [([3], [[3], [3]]), ([2, 4], [[4], []]), ([1, 2, 0], [[0], []]), ([2, 1, 5], [[], [5]]), ([0, 1, 2, 3], [[], []])],
)
def test_suppress_sequences(sequence: list[int], expected: list[list[int]]) -> None:
    values = logits(2)
    SuppressSequences([sequence])(history([1, 2], [2, 1]), values)
    assert forbidden(values) == expected


@pytest.mark.parametrize("beam_size", [1, 3])
def test_suppressed_tokens_and_sequences_are_not_generated(beam_size: int) -> None:
    session = ToySession(vocab_size=8, end_bias=-9.0, max_target_length=30)
    options = DecodeOptions(beam_size=beam_size, n_best=beam_size)
    sources = [(index,) for index in range(4, 8)]

    def ngrams(options: DecodeOptions, size: int) -> set[tuple[int, ...]]:
        output = [best.ids for hypotheses in decode(session, sources, options) for best in hypotheses]
        return {gram for ids in output for gram in zip(*(ids[start:] for start in range(size)), strict=False)}

    assert {(5,), (session.special.unk,)} <= ngrams(options, 1)
    assert (5,) not in ngrams(replace(options, suppress_tokens=[5]), 1)
    assert (session.special.unk,) not in ngrams(replace(options, disable_unk=True), 1)
    pair, triple = min(ngrams(options, 2)), max(ngrams(options, 3))
    kept = replace(options, suppress_sequences=[pair, triple])
    assert pair not in ngrams(kept, 2)
    assert triple not in ngrams(kept, 3)


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_once() -> None:
    values = logits(2)
    RepetitionPenalty(2.0)(history([0, 3, 0, 0], [4, 5, 5, 1]), values)
    np.testing.assert_array_equal(values, np.array([[0.5, -1, 2, -4, 0, 3], [1, -2, 2, -2, 0, 1.5]], dtype=np.float32))


def test_repetition_penalty_keeps_forbidden_tokens_forbidden_and_needs_no_history() -> None:
    values = logits()
    RepetitionPenalty(2.0)(NOTHING, values)
    np.testing.assert_array_equal(values, logits())
    values[0, 2] = -np.inf
    RepetitionPenalty(2.0)(history([2]), values)
    assert forbidden(values) == [[2]]


HISTORIES = st.integers(0, 12).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(0, VOCAB - 1), min_size=length, max_size=length), min_size=1, max_size=3
    )
)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), HISTORIES)
def test_no_repeat_ngram_forbids_exactly_what_would_repeat_in_each_row(size: int, rows: list[list[int]]) -> None:
    values = logits(len(rows))
    NoRepeatNgram(size)(history(*rows), values)

    def repeats(row: list[int], token: int) -> bool:
        extended = [*row, token]
        ngrams = [tuple(extended[start : start + size]) for start in range(len(extended) - size + 1)]
        return len(ngrams) > 0 and ngrams[-1] in ngrams[:-1]

    assert forbidden(values) == [[token for token in range(VOCAB) if repeats(row, token)] for row in rows]


def test_only_what_is_asked_for_is_built() -> None:
    special = SpecialTokens()
    (suppress,) = build_processors(DecodeOptions(), special)
    assert isinstance(suppress, Suppress)
    assert suppress.tokens == [special.pad, special.bos]
    options = DecodeOptions(min_length=2, no_repeat_ngram_size=3, repetition_penalty=1.5)
    kinds = {type(processor) for processor in build_processors(options, special)}
    assert kinds == {Suppress, MinLength, NoRepeatNgram, RepetitionPenalty}
