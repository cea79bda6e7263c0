"""The decode loop: limits, counters, and order."""

from __future__ import annotations

import pytest

from edgeformer_runtime.search.loop import Counters, decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.search import Hypothesis
from tests.toy import ToySession, reference_beam, reference_greedy

SOURCES = [(4,) * length for length in (3, 9, 1, 6, 9, 2)]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_counters_count_what_was_done(beam_size: int) -> None:
    session = ToySession(end_bias=1.0)
    options = DecodeOptions(beam_size=beam_size, max_batch_tokens=18 * beam_size)
    find = reference_greedy if beam_size == 1 else reference_beam
    references = [find(session, source, options) for source in SOURCES]
    counters = Counters()
    decode(session, SOURCES, options, counters)
    batches = [[1, 4], [3, 0, 5], [2]]
    assert counters.sentences == len(SOURCES)
    assert counters.batches == len(batches)
    assert counters.steps == len(session.rows) == sum(max(references[i].steps for i in batch) for batch in batches)
    later_steps = sum(reference.steps - 1 for reference in references)
    assert counters.row_steps == sum(session.rows) == len(SOURCES) + beam_size * later_steps
    best = [reference.hypotheses[0] for reference in references]
    assert counters.tokens == sum(len(hypothesis.ids) + hypothesis.finished for hypothesis in best)
    assert counters.peak_state_bytes > 0
    assert 0 < counters.first_token_seconds < counters.total_seconds
    assert counters.encoder_seconds > 0
    assert counters.decoder_seconds > 0
    assert counters.host_seconds == pytest.approx(
        counters.batch_seconds - counters.encoder_seconds - counters.decoder_seconds
    )
    assert counters.host_seconds > 0


def test_counters_accumulate_over_calls_and_keep_the_larger_peak() -> None:
    session, counters = ToySession(), Counters()
    singles = []
    for source in SOURCES:
        decode(session, [source], DecodeOptions(beam_size=1), counters)
        single = Counters()
        decode(session, [source], DecodeOptions(beam_size=1), single)
        singles.append(single)
    total = Counters()
    for single in singles:
        total.add(single)
    for name in ("sentences", "batches", "steps", "row_steps", "tokens", "peak_state_bytes"):
        assert getattr(counters, name) == getattr(total, name)
    assert total.peak_state_bytes == max(single.peak_state_bytes for single in singles)
    assert total.total_seconds == pytest.approx(sum(single.total_seconds for single in singles))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_sentence_is_told_when_its_own_search_ends(beam_size: int) -> None:
    session, options = ToySession(end_bias=1.0), DecodeOptions(beam_size=beam_size)
    steps = []
    for source in SOURCES:
        alone = ToySession(end_bias=1.0)
        decode(alone, [source], options)
        steps.append(len(alone.rows))
    told, when = dict[int, list[Hypothesis]](), dict[int, int]()

    def done(index: int, hypotheses: list[Hypothesis]) -> None:
        told[index], when[index] = hypotheses, len(session.rows)

    results = decode(session, SOURCES, options, done=done)
    assert [told[index] for index in range(len(SOURCES))] == results
    assert [when[index] for index in range(len(SOURCES))] == steps
    assert len(set(steps)) > 2
