"""Random sampling: its distribution, its bounds, and its independence of the batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Request
from edgeformer_runtime.search.sampling import Sampler
from tests.runtime.test_search import FEW, MODELS, SOURCES
from tests.toy import Ids, ToySession, score

LOGITS = np.log(np.array([[0.4, 0.05, 0.3, 0.2, 0.05]], dtype=np.float32)) + 3


def sampled(count: int, **changes: float) -> Counter[int]:
    """Tokens sampled from :data:`LOGITS`."""
    options = DecodeOptions(beam_size=1, **{"sampling_topk": 0, **changes})  # type: ignore[arg-type]  # numbers all
    sampler = Sampler([Request(source=(4,), limit=9)], options)
    return Counter(int(sampler(LOGITS)[0]) for _ in range(count))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.4, 0.05, 0.3, 0.2, 0.05]),
        ({"sampling_topk": 2}, [4 / 7, 0, 3 / 7, 0, 0]),
        ({"sampling_topk": 100}, [0.4, 0.05, 0.3, 0.2, 0.05]),
        ({"sampling_topp": 0.69}, [4 / 7, 0, 3 / 7, 0, 0]),
        ({"sampling_topp": 0.71}, [4 / 9, 0, 3 / 9, 2 / 9, 0]),
        ({"sampling_topp": 1e-9}, [1, 0, 0, 0, 0]),
        ({"sampling_temperature": 0.5}, [0.16 / 0.295, 0.0025 / 0.295, 0.09 / 0.295, 0.04 / 0.295, 0.0025 / 0.295]),
        ({"sampling_temperature": 1e-300}, [1, 0, 0, 0, 0]),
        ({"sampling_temperature": 1e300}, [0.2] * 5),
        # the temperature comes before the nucleus: of the flat distribution, 0.59 takes three tokens
        ({"sampling_temperature": 1e300, "sampling_topp": 0.59}, [1 / 3, 0, 1 / 3, 1 / 3, 0]),
        ({"sampling_topk": 3, "sampling_topp": 0.5}, [4 / 7, 0, 3 / 7, 0, 0]),
    ],
)
def test_samples_have_the_documented_distribution(changes: dict[str, float], expected: list[float]) -> None:
    count = 2000
    found = sampled(count, **changes)
    for token, probability in enumerate(expected):
        error = 4 * np.sqrt(probability * (1 - probability) / count)  # standard deviations
        assert abs(found[token] / count - probability) <= error


def test_a_token_without_probability_is_never_sampled() -> None:
    logits = np.full((1, 50), -np.inf, dtype=np.float32)
    logits[0, 7] = 0
    for options in (
        DecodeOptions(beam_size=1, sampling_topk=0),
        DecodeOptions(beam_size=1, sampling_topk=9, sampling_topp=0.99, sampling_temperature=50.0),
    ):
        sampler = Sampler([Request(source=(4,), limit=9)], options)
        assert {int(sampler(logits)[0]) for _ in range(200)} == {7}


@FEW
@given(
    MODELS,
    st.lists(SOURCES, min_size=2, max_size=5, unique=True),
    st.integers(1, 4),
    st.sampled_from([0, 2, 9]),
    st.sampled_from([1.0, 0.6]),
    st.integers(0, 9),
)
def test_samples_do_not_depend_on_the_batch(
    session: ToySession, sources: list[Ids], n_best: int, topk: int, topp: float, seed: int
) -> None:
    options = DecodeOptions(
        beam_size=1, n_best=n_best, sampling_topk=topk, sampling_topp=topp, seed=seed, return_token_scores=True
    )
    together = decode(session, sources, options, workers=2)
    assert together == [decode(session, [source], options)[0] for source in sources]
    assert together[::-1] == decode(session, sources[::-1], options)
    for source, hypotheses in zip(sources, together, strict=True):
        assert len(hypotheses) == n_best
        assert [best.score for best in hypotheses] == sorted((best.score for best in hypotheses), reverse=True)  # type: ignore[type-var]  # scores are numbers here
        for hypothesis in hypotheses:
            ids = (*hypothesis.ids, *[session.special.eos] * hypothesis.finished)
            expected = [session.log_probabilities(source, ids[:step])[token] for step, token in enumerate(ids)]
            assert hypothesis.token_scores == pytest.approx(expected, abs=1e-5)
            assert hypothesis.score == pytest.approx(score(sum(expected), len(ids), 1.0), abs=1e-5)


def test_samples_differ_by_seed_and_number() -> None:
    session = ToySession(vocab_size=40, end_bias=-9.0)
    options = DecodeOptions(beam_size=1, n_best=20, sampling_topk=0)
    (first,) = decode(session, [(4,)], options)
    assert len({hypothesis.ids for hypothesis in first}) == 20
    (other,) = decode(session, [(4,)], DecodeOptions(beam_size=1, n_best=20, sampling_topk=0, seed=1))
    assert not {hypothesis.ids for hypothesis in first} & {hypothesis.ids for hypothesis in other}
    (fewer,) = decode(session, [(4,)], DecodeOptions(beam_size=1, n_best=5, sampling_topk=0))
    assert {hypothesis.ids for hypothesis in fewer} < {hypothesis.ids for hypothesis in first}


def test_sampling_is_not_mixed_with_search() -> None:
    for options, message in (
        (DecodeOptions(sampling_topk=0), "`beam_size` must be 1 for sampling, but is 4"),
        (
            DecodeOptions(beam_size=1, sampling_topk=0, return_alternatives=True),
            "sampling and `return_alternatives` cannot be combined",
        ),
    ):
        with pytest.raises(OptionError, match=message):
            decode(ToySession(), [(4,)], options)
