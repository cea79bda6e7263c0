"""Shortlists: the lists themselves, their file, and searches that use only listed tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import FloatArray, IntArray
from edgeformer_runtime.search.shortlist import MULTIPLE, Shortlist, read_shortlist
from tests.amounts import examples
from tests.toy import Ids, ToySession, ToyState

FEW = examples(10, 60, derandomize=True)


@st.composite
def shortlists(draw: st.DrawFn) -> Shortlist:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    sources, targets = draw(st.integers(1, 30)), draw(st.integers(1, 700) | st.just(70_000))
    sizes = random.integers(0, min(targets, 60), sources) * (random.random(sources) < 0.8)
    lists = [random.permutation(targets)[:size] for size in sizes]
    tokens = np.concatenate([*lists, np.empty(0, np.int64)]).astype(np.int64)
    always = draw(st.integers(1, min(targets, 50)))
    return Shortlist(always, np.cumsum(sizes), random.permutation(targets), tokens)


def list_of(shortlist: Shortlist, token: int) -> set[int]:
    start = int(shortlist.ends[token - 1]) if token else 0
    return set(shortlist.tokens[start : shortlist.ends[token]].tolist())


@FEW
@given(shortlists(), st.data())
def test_a_sentence_may_use_frequent_tokens_and_those_of_its_own(shortlist: Shortlist, data: st.DataObject) -> None:
    token = st.integers(0, len(shortlist.ends) - 1)
    sources = data.draw(st.lists(st.lists(token, min_size=1, max_size=8), min_size=1, max_size=5))
    expected = [
        set(shortlist.frequent[: shortlist.always].tolist()).union(*(list_of(shortlist, token) for token in source))
        for source in sources
    ]
    together, usable = shortlist.listed_together(sources)
    assert usable.shape == (len(sources), len(together))
    assert (np.diff(together) > 0).all()
    assert len(together) % MULTIPLE == 0 or len(together) == len(shortlist.frequent)
    for source, row, tokens in zip(sources, usable, expected, strict=True):
        assert set(np.flatnonzero(shortlist.usable(source)).tolist()) == tokens
        assert set(together[row].tolist()) == tokens, "whatever the other sentences are"


@FEW
@given(shortlists())
def test_a_shortlist_is_read_as_it_was_written(shortlist: Shortlist) -> None:
    sizes = len(shortlist.ends), len(shortlist.frequent)
    read = read_shortlist(shortlist.to_bytes(), *sizes)
    assert read.always == shortlist.always
    for name in ("ends", "frequent", "tokens"):
        np.testing.assert_array_equal(getattr(read, name), getattr(shortlist, name))
    with pytest.raises(BundleError, match="other vocabularies"):
        read_shortlist(shortlist.to_bytes(), sizes[0] + 1, sizes[1])


@examples(30, 300, derandomize=True)
@given(shortlists(), st.data())
def test_damaged_lists_are_refused_or_are_lists(shortlist: Shortlist, data: st.DataObject) -> None:
    content = bytearray(shortlist.to_bytes())
    sizes = len(shortlist.ends), len(shortlist.frequent)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(content)))
    try:
        read = read_shortlist(bytes(content[:cut]), *sizes)
    except BundleError:
        return
    together, usable = read.listed_together([list(range(sizes[0]))])
    assert usable.any(axis=0).sum() <= sizes[1]
    assert set(together.tolist()) <= set(range(sizes[1]))


def usable(session: ToySession, source: Ids) -> list[int]:
    """Half of the tokens, which depend on the sentence."""
    random = np.random.default_rng((session.seed, *source))
    special = session.special
    chosen = random.permutation(session.vocab_size)[: 1 + session.vocab_size // 2].tolist()
    return sorted({special.eos, *chosen} - {special.pad, special.bos, *special.suppress, *special.forbid})


@dataclass
class ListedState(ToyState):
    """A state of :class:`ListedSession`."""

    @property
    def vocab_size(self) -> int:
        return self.session.vocab_size

    @property
    def listed(self) -> IntArray:
        session = self.session
        assert isinstance(session, ListedSession)
        return np.array(sorted({token for source in session.batch for token in usable(session, source)}))

    def step(self, token: IntArray) -> FloatArray:
        logits, session = super().step(token), self.session
        assert isinstance(session, ListedSession)
        beams = len(logits) // len(self.sources)
        may_use = np.array([np.isin(self.listed, usable(session, source)) for source in self.sources]).repeat(beams, 0)
        return np.where(may_use, logits[:, self.listed], np.float32(-np.inf))


@dataclass
class ListedSession(ToySession):
    """A session whose searches use some tokens only, which depend on the sentence."""

    batch: tuple[Ids, ...] = field(default=())

    def start_search(self, source: IntArray, source_length: IntArray) -> ListedState:
        """See :class:`~edgeformer_runtime.search.session.SearchSession`."""
        state = self.start(source, source_length)
        self.batch = state.sources
        return ListedState(self, state.sources, state.prefixes)


@dataclass
class MaskedSession(ToySession):
    """The same model, which gives other tokens no probability."""

    def logits(self, source: Ids, prefix: Ids) -> FloatArray:
        logits = super().logits(source, prefix)
        logits[np.setdiff1d(np.arange(self.vocab_size), usable(self, source))] = -np.inf
        return logits


@st.composite
def searches(draw: st.DrawFn) -> DecodeOptions:
    kind = draw(st.sampled_from(["greedy", "beam", "sample", "rules"]))
    if kind == "sample":
        return DecodeOptions(beam_size=1, sampling_topk=draw(st.sampled_from([0, 3])), seed=draw(st.integers(0, 99)))
    beam_size = 1 if kind == "greedy" else draw(st.integers(1, 5))
    options = DecodeOptions(beam_size=beam_size, n_best=beam_size, return_token_scores=draw(st.booleans()))
    if kind == "rules":
        options = DecodeOptions(
            beam_size=beam_size,
            min_length=draw(st.integers(0, 3)),
            no_repeat_ngram_size=draw(st.integers(0, 3)),
            repetition_penalty=draw(st.sampled_from([1.0, 1.5])),
            suppress_tokens=draw(st.sampled_from([(), (5,), (5, 6)])),
        )
    return options


@examples(20, 150, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(8, 40),
    end_bias=st.sampled_from([-1.0, 0.0, 2.0]),
    row_multiple=st.sampled_from([1, 2]),
    sources=st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=6).map(tuple), min_size=1, max_size=6),
    prefix=st.booleans(),
    options=searches(),
)
def test_a_search_among_listed_tokens_is_that_of_a_model_without_others(
    seed: int,
    vocab_size: int,
    end_bias: float,
    row_multiple: int,
    sources: list[Ids],
    prefix: bool,
    options: DecodeOptions,
) -> None:
    listed, masked = (
        kind(seed=seed, vocab_size=vocab_size, end_bias=end_bias, row_multiple=row_multiple)
        for kind in (ListedSession, MaskedSession)
    )
    prefixes = [(7,) * (index % 3) for index in range(len(sources))] if prefix else None
    found = decode(listed, sources, options, prefixes=prefixes)
    expected = decode(masked, sources, options, prefixes=prefixes)
    for of_sentence, reference in zip(found, expected, strict=True):
        # Hypotheses of no probability fill the places of a beam that has too few tokens to choose from.
        possible = [hypothesis for hypothesis in reference if np.isfinite(hypothesis.score or 0.0)]
        assert [hypothesis.ids for hypothesis in of_sentence] == [hypothesis.ids for hypothesis in possible]
        for hypothesis, other in zip(of_sentence, possible, strict=True):
            assert hypothesis.score == pytest.approx(other.score, abs=1e-5)
            assert hypothesis.finished == other.finished
    alone = [
        decode(listed, [source], options, prefixes=prefixes and [prefixes[index]])[0]
        for index, source in enumerate(sources)
    ]
    assert [[h.ids for h in hypotheses] for hypotheses in alone] == [
        [h.ids for h in hypotheses] for hypotheses in found
    ]
