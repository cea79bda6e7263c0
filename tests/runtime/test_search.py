"""Greedy and beam search against references that share no code with them, over random toy language models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.errors import ModelError, OptionError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.search import BeamSearch, GreedySearch, packed
from tests.amounts import examples
from tests.toy import Ids, ToySession, reference_beam, reference_greedy, same

MODELS = st.builds(
    ToySession,
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(5, 24),
    max_target_length=st.integers(1, 10),
    end_bias=st.sampled_from([-20.0, -1.0, 0.0, 2.0, 5.0]),
    row_multiple=st.sampled_from([1, 2]),
)
SOURCES = st.lists(st.integers(4, 9), min_size=1, max_size=6).map(tuple)
PREFIXES = st.lists(st.sampled_from([1, 4]), max_size=4).map(tuple)
SPECIAL = st.sampled_from(
    [
        SpecialTokens(),
        SpecialTokens(forbid=(5, 7)),
        SpecialTokens(pad=6, unk=None, bos=5, eos=0, suppress=(5, 6)),
    ]
)
ENDLESS = Request(source=(4,), limit=100)
FEW = settings(max_examples=50, deadline=None, derandomize=True)


@st.composite
def beam_options(draw: st.DrawFn) -> DecodeOptions:
    beam_size = draw(st.just(1) | st.integers(2, 6))
    max_length = draw(st.none() | st.integers(1, 8))
    return DecodeOptions(
        beam_size=beam_size,
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0])),
        min_length=draw(st.integers(0, 8 if max_length is None else max_length)),
        max_length=max_length,
    )


def within(session: ToySession, options: DecodeOptions) -> DecodeOptions:
    """Options that the model can keep to."""
    return replace(options, min_length=min(options.min_length, session.max_target_length))


def with_room(session: ToySession, prefix: Ids, options: DecodeOptions) -> Ids:
    """As much of a prefix as leaves room for a token."""
    return prefix[: min(options.max_length or session.max_target_length, session.max_target_length) - 1]


@examples(150, 600, derandomize=True)
@given(MODELS, SOURCES, PREFIXES, beam_options(), st.booleans(), st.booleans(), SPECIAL)
def test_search_equals_the_reference(
    session: ToySession,
    source: Ids,
    prefix: Ids,
    options: DecodeOptions,
    shrinks: bool,
    early: bool,
    special: SpecialTokens,
) -> None:
    forbid = special.forbid
    session = replace(session, special=special, vocab_size=session.vocab_size + 4, rows=[])
    options = replace(within(session, options), beam_shrinks=shrinks and early, early_stopping=early)
    prefix = with_room(session, prefix, options)
    find = reference_greedy if options.beam_size == 1 else reference_beam
    expected = find(session, source, options, prefix)
    (hypotheses,) = decode(session, [source], options, prefixes=[prefix])
    assert same(hypotheses, expected.hypotheses), (hypotheses, expected.hypotheses)
    assert all(hypothesis.ids[: len(prefix)] == prefix for hypothesis in hypotheses)
    assert not {*forbid} & {token for hypothesis in hypotheses for token in hypothesis.ids}
    beams = options.beam_size
    if beams == 1:
        assert session.rows == [1] * expected.steps
        (unscored,) = decode(session, [source], replace(options, return_scores=False), prefixes=[prefix])
        assert unscored == [replace(hypotheses[0], score=None)]
    elif not prefix and not options.beam_shrinks:
        surplus = beams % 2 if session.row_multiple == 2 else 0
        first = beams + surplus if session.row_multiple == 2 else 1  # all beams start alike, so one is enough
        assert session.rows == [first] + [beams + surplus] * (expected.steps - 1)
    if not early:
        stopped = find(session, source, replace(options, early_stopping=True), prefix).hypotheses
        assert (expected.hypotheses[0].score or 0.0) >= (stopped[0].score or 0.0) - 1e-6


def test_min_length_beyond_the_longest_output_is_refused() -> None:
    session = ToySession(max_target_length=9)
    assert len(decode(session, [(4,)], DecodeOptions(min_length=9))[0][0].ids) == 9
    with pytest.raises(
        OptionError, match="`min_length` must be at most 9, as many tokens as the model writes, but is 10"
    ):
        decode(session, [(4,)], DecodeOptions(min_length=10))


@pytest.mark.parametrize("search_type", [GreedySearch, BeamSearch])
@pytest.mark.parametrize(
    "row",
    [[0, 1, np.nan, 2, 3, 4, 5], [np.nan] * 7, [-np.inf] * 7, [0, 1, np.inf, 2, 3, 4, 5]],
    ids=["one-nan", "all-nan", "all-forbidden", "infinite"],
)
def test_logits_that_are_no_numbers_are_refused(
    search_type: type[GreedySearch] | type[BeamSearch], row: list[float]
) -> None:
    beams = 1 if search_type is GreedySearch else 2
    search = search_type([ENDLESS] * 2, DecodeOptions(beam_size=beams), SpecialTokens())
    search.advance(np.array([[0, 0, 0, -9, 1, 2, 3]] * 2, dtype=np.float32))
    logits = np.zeros((2 * beams, 7), dtype=np.float32)
    logits[-1] = row
    with pytest.raises(ModelError, match="At step 2 no token has a finite logit"):
        search.advance(logits)


def test_no_sentence_gives_no_output() -> None:
    assert decode(ToySession(), [], DecodeOptions()) == []


def test_greedy_search_takes_the_lowest_of_equal_ids() -> None:
    search = GreedySearch([ENDLESS] * 2, DecodeOptions(beam_size=1), SpecialTokens())
    search.advance(np.array([[0, 0, 0, -1, 0], [-1, -2, 7, 5, 7]], dtype=np.float32))
    assert search.token.tolist() == [0, 2]


@pytest.mark.parametrize("row_multiple", [1, 2])
def test_beam_search_orders_equal_extensions_by_beam_and_id(row_multiple: int) -> None:
    search = BeamSearch([ENDLESS], DecodeOptions(beam_size=2), SpecialTokens(), row_multiple=row_multiple)
    search.advance(np.array([[-9, 1, -9, -9, 1, 0]] * row_multiple, dtype=np.float32))
    assert search.token.tolist() == [1, 4]
    advance = search.advance(np.array([[-9, -9, -9, -9, 2, -9]] * 2, dtype=np.float32))
    assert search.token.tolist() == [4, 4]
    assert search.history.tolist() == [[1, 4], [4, 4]]
    assert advance.rows is None, "both rows go on in place"


@given(st.lists(st.booleans(), max_size=40))
def test_packed_fills_holes_and_moves_nothing_else(flags: list[bool]) -> None:
    alive = np.array(flags, bool)
    order = packed(alive)
    assert sorted(order.tolist()) == np.flatnonzero(alive).tolist()
    count = int(alive.sum())
    for place, start in enumerate(order.tolist()):
        # Who has a place among the first stays there; who comes from behind takes the place of one that is gone.
        assert start == place if alive[place] else start >= count
