"""Decoding options give what CTranslate2 gives with the same weights.

Only best hypotheses are compared: when beam search ends, CTranslate2 may have more than K hypotheses to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from edgeformer_runtime.translator import AnyTranslator
from tests.store import Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

import ctranslate2
import numpy as np

from edgeformer.quality.translators import run_translator
from edgeformer_bench.peers.ctranslate2 import token_names
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.tokenizers import BOS_TOKEN, PAD_TOKEN
from tests import factory

TEXTS = [source for source, _ in factory.PAIRS[::9]]
Output = list[tuple[tuple[int, ...], float]]
"""Ids and score of each hypothesis."""


class Oracle:
    """Our model, and CTranslate2 with the same weights."""

    def __init__(self, ours: AnyTranslator, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs
        special = SpecialTokens()
        self.names = token_names(ours.target_tokenizer.vocab_size, special)
        self._ids = {name: index for index, name in enumerate(self.names)}
        names = token_names(ours.source_tokenizer.vocab_size, special)
        self.sources = [
            [names[index] for index in ids] for ids in ours.source_tokenizer.encode_batch(TEXTS, special_tokens=True)
        ]

    def expected(self, prefixes: list[list[int]] | None = None, **options: Any) -> list[Output]:
        """What CTranslate2 gives, without its own limits."""
        given = None if prefixes is None else [[self.names[index] for index in prefix] for prefix in prefixes]
        settings = {
            "max_input_length": 0,
            "max_decoding_length": self.ours.session.max_target_length,
            "min_decoding_length": 0,
            "return_scores": True,
            **options,
            # which ours never generates
            "suppress_sequences": [[PAD_TOKEN], [BOS_TOKEN], *options.get("suppress_sequences", [])],
        }
        results = self.theirs.translate_batch(self.sources, given, **settings)
        return [
            [(tuple(self._ids[name] for name in ids), score) for ids, score in zip(*both, strict=True)]
            for both in ((result.hypotheses, result.scores) for result in results)
        ]

    def compare(
        self, ours: Mapping[str, Any], theirs: Mapping[str, Any], prefixes: list[list[int]] | None = None
    ) -> list[Output]:
        """Check that both give the same hypotheses and scores, and return them."""
        expected = self.expected(prefixes, **theirs)
        translations = self.ours.translate(TEXTS, target_prefix=prefixes, **ours)
        found = [[(best.ids, best.score) for best in translation.hypotheses] for translation in translations]
        assert [[ids for ids, _ in output] for output in found] == [[ids for ids, _ in output] for output in expected]
        for output, others in zip(found, expected, strict=True):
            assert [score for _, score in output] == pytest.approx([score for _, score in others], rel=1e-4, abs=1e-4)
        return expected


@pytest.fixture(scope="module")
def oracle(store: Store, one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    run = store.run(steps=100)
    folder = tmp_path_factory.mktemp("ctranslate2") / "model"
    convert_run(run, folder, "float32")
    theirs = ctranslate2.Translator(str(folder), intra_threads=1, inter_threads=1)
    return Oracle(run_translator(run, run.load_model()), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_target_prefix(oracle: Oracle, beam_size: int) -> None:
    beams: dict[str, Any] = {"beam_size": beam_size}
    free = oracle.expected(**beams)
    # prefixes of 1 to 5 tokens, of the translations of other sentences
    prefixes = [list(output[0][0][: 1 + index % 5]) for index, output in enumerate(reversed(free))]
    for penalty in (0.4, 1.0):
        changes: Any = {"length_penalty": penalty}
        forced = oracle.compare({"beam_size": beam_size, **changes}, {**beams, **changes}, prefixes)
        assert [output[0][0] for output in forced] != [output[0][0] for output in free]


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_tokens_that_are_not_generated(oracle: Oracle, beam_size: int) -> None:
    beams: dict[str, Any] = {"beam_size": beam_size}
    free = oracle.expected(**beams)
    best = [output[0][0] for output in free]
    token, pairs = best[0][3], [list(best[1][2:4]), list(best[2][4:7]), [best[3][5]]]
    names = [[oracle.names[index] for index in pair] for pair in pairs]
    for ours, theirs in (
        ({"suppress_tokens": [token]}, {"suppress_sequences": [[oracle.names[token]]]}),
        ({"suppress_sequences": pairs}, {"suppress_sequences": names}),
        ({"suppress_sequences": pairs, "disable_unk": True}, {"suppress_sequences": names, "disable_unk": True}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"min_length": 20, "max_length": 22}, {"min_decoding_length": 20, "max_decoding_length": 22}),
    ):
        output = oracle.compare({**beams, **ours}, {**beams, **theirs})
        assert [hypotheses[0][0] for hypotheses in output] != best


def test_scores_of_given_translations(oracle: Oracle) -> None:
    best = [output[0][0] for output in oracle.expected(beam_size=1)]
    targets = [best[-1], *best[:-1]]
    names = [[oracle.names[index] for index in target] for target in targets]
    expected = oracle.theirs.score_batch(oracle.sources, names, max_input_length=0)
    for score, other in zip(oracle.ours.score(TEXTS, targets), expected, strict=True):
        # There, padding and the start token have some of the probability.
        assert score.token_scores == pytest.approx(other.log_probs, abs=2e-3)
        assert all(ours > theirs - 1e-4 for ours, theirs in zip(score.token_scores, other.log_probs, strict=True))
        assert score.ids == (*score.ids[:-1], oracle.ours.session.special.eos)


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_penalties_and_patience(oracle: Oracle, beam_size: int) -> None:
    beams: dict[str, Any] = {"beam_size": beam_size}
    for changes in (
        {"patience": 2.0},
        {"patience": 0.5, "length_penalty": 0.6},
        {"length_penalty": 1.5, "patience": 2.0},
    ):
        oracle.compare({**beams, **changes}, {**beams, **changes})


@pytest.mark.slow
def test_alternatives_in_greedy_search(oracle: Oracle) -> None:
    """The tokens are the same; our score is that of the whole output, and CTranslate2's a sum of two scores."""
    best = [list(output[0][0]) for output in oracle.expected(beam_size=1)]
    prefixes = [prefix[: 1 + index % 6] for index, prefix in enumerate(best)]
    for least in (0.0, 0.02):
        options: dict[str, Any] = {"beam_size": 1, "return_alternatives": True, "min_alternative_expansion_prob": least}
        expected = oracle.expected(prefixes, num_hypotheses=4, **options)
        found = oracle.ours.translate(TEXTS, target_prefix=prefixes, n_best=4, **options)
        for translation, output in zip(found, expected, strict=True):
            assert [best.ids for best in translation.hypotheses] == [ids for ids, _ in output]
    assert {len(output) for output in expected} > {1}


def test_a_tiny_nucleus_is_greedy_search(oracle: Oracle) -> None:
    sampling = {"beam_size": 1, "sampling_topk": 50, "sampling_topp": 1e-6, "sampling_temperature": 3.0}
    output = oracle.compare(sampling, sampling)
    assert output == oracle.expected(beam_size=1)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_attention(oracle: Oracle, beam_size: int) -> None:
    expected = oracle.theirs.translate_batch(
        oracle.sources,
        beam_size=beam_size,
        return_attention=True,
        max_batch_size=1,  # a batch of several mixes up their attention in the first step of beam search
        max_input_length=0,
        max_decoding_length=oracle.ours.session.max_target_length,
    )
    for translation, other in zip(
        oracle.ours.translate(TEXTS, beam_size=beam_size, return_attention=True), expected, strict=True
    ):
        attention = translation.best.attention
        assert attention is not None
        np.testing.assert_allclose(attention.weights[: len(other.attention[0])], other.attention[0], atol=1e-5)
        assert len(attention.weights) == len(other.attention[0]) + translation.best.finished
