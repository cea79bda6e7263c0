"""Alternatives, token scores, patience and biased prefixes, against references over toy models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from tests.runtime.test_search import FEW, MODELS, PREFIXES, SOURCES, beam_options, with_room, within
from tests.toy import Ids, ToySession


@FEW
@given(MODELS, SOURCES, PREFIXES, st.integers(1, 4), st.sampled_from([1, 3]), st.sampled_from([0.0, 0.1, 1.0]))
def test_alternatives_continue_the_most_probable_tokens(
    session: ToySession, source: Ids, prefix: Ids, n_best: int, beam_size: int, least: float
) -> None:
    options = DecodeOptions(
        beam_size=beam_size, n_best=n_best, return_alternatives=True, min_alternative_expansion_prob=least
    )
    prefix = with_room(session, prefix, options)
    (found,) = decode(session, [source], replace(options, return_token_scores=True), prefixes=[prefix])
    logits = session.logits(source, prefix).astype(np.float64)
    logits[[session.special.pad, session.special.bos, session.special.eos]] = -np.inf
    values = logits - np.log(np.exp(logits).sum())
    order = [token for token in np.argsort(-values, kind="stable") if np.isfinite(values[token])][:n_best]
    order = [token for rank, token in enumerate(order) if rank == 0 or np.exp(values[token]) >= least]
    assert [hypothesis.ids[: len(prefix) + 1] for hypothesis in found] == [(*prefix, token) for token in order]
    for hypothesis, token in zip(found, order, strict=True):
        assert hypothesis.token_scores is not None
        assert hypothesis.token_scores[: len(prefix)] == (0,) * len(prefix)
        assert hypothesis.token_scores[len(prefix)] == pytest.approx(values[token], abs=1e-5)
        assert hypothesis.score == pytest.approx(sum(hypothesis.token_scores) / len(hypothesis.token_scores), abs=1e-5)
        if beam_size == 1 and len(hypothesis.ids) > len(prefix) + 1:
            (rest,) = decode(session, [source], DecodeOptions(beam_size=1), prefixes=[(*prefix, int(token))])
            assert hypothesis.ids == rest[0].ids


@FEW
@given(MODELS, st.lists(st.tuples(SOURCES, PREFIXES), min_size=1, max_size=5), beam_options(), st.booleans())
def test_token_scores_add_up(
    session: ToySession, pairs: list[tuple[Ids, Ids]], options: DecodeOptions, greedy: bool
) -> None:
    options = within(session, replace(options, beam_size=1, n_best=1) if greedy else options)
    options = replace(options, return_token_scores=True)
    prefixes = [with_room(session, prefix, options) for _, prefix in pairs]
    results = decode(session, [source for source, _ in pairs], options, prefixes=prefixes)
    for (source, _), prefix, hypotheses in zip(pairs, prefixes, results, strict=True):
        for hypothesis in hypotheses:
            ids = (*hypothesis.ids, *[session.special.eos] * hypothesis.finished)
            expected = [
                session.log_probabilities(source, ids[:step], options.min_length)[ids[step]]
                for step in range(len(prefix), len(ids))
            ]
            assert hypothesis.token_scores == pytest.approx([0.0] * len(prefix) + expected, abs=1e-5)
            assert hypothesis.score == pytest.approx(sum(expected) / len(ids) ** options.length_penalty, abs=1e-4)
    without = decode(
        session, [source for source, _ in pairs], replace(options, return_token_scores=False), prefixes=prefixes
    )
    assert without == [[replace(best, token_scores=None) for best in hypotheses] for hypotheses in results]


@pytest.mark.parametrize("includes_end", [True, False])
@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_length_counts_the_end_token_or_not(beam_size: int, includes_end: bool) -> None:
    session = ToySession(end_bias=1.0)
    options = DecodeOptions(beam_size=beam_size, length_includes_end=includes_end, return_token_scores=True)
    for source in ((4,), (5, 6), (7, 8, 9)):
        (best,) = decode(session, [source], options)[0]
        assert best.token_scores is not None
        length = max(1, len(best.ids) + (best.finished and includes_end))
        assert best.score == pytest.approx(sum(best.token_scores) / length)


@pytest.mark.parametrize(("patience", "places"), [(0.4, 2), (0.5, 2), (1.0, 4), (2.0, 8), (0.01, 1)])
def test_patience_sets_the_number_of_hypotheses(patience: float, places: int) -> None:
    session = ToySession(vocab_size=24, end_bias=3.0, max_target_length=60)
    options = DecodeOptions(beam_size=4, patience=patience, n_best=places)
    (found,) = decode(session, [(4,)], options)
    assert len(found) == places
    assert len({hypothesis.ids for hypothesis in found}) == places
    with pytest.raises(OptionError, match="`n_best` must be at most `beam_size`"):
        decode(session, [(4,)], replace(options, n_best=places + 1))
