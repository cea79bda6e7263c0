"""Decoding options give what CTranslate2 gives with the same weights.

Only best hypotheses are compared: at the end of beam search, CTranslate2 may have more than K hypotheses to choose from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from edgeformer_runtime.decoding.options import DecodeChanges
from edgeformer_runtime.translator import AnyTranslator
from tests.store import Store

pytest.importorskip("torch")
ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

import torch

from edgeformer.quality.translators import run_translator
from edgeformer_bench.peers.ctranslate2_format import token_names
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_runtime.bundle.manifest import SpecialTokens
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
            [names[index] for index in ids] for ids in ours.source_tokenizer.encode_batch(TEXTS, end_token=True)
        ]

    def expected(self, prefixes: list[list[int]] | None = None, **options: Any) -> list[Output]:
        """What CTranslate2 gives, without its own limits."""
        given = None if prefixes is None else [[self.names[index] for index in prefix] for prefix in prefixes]
        limits = {"max_input_length": 0, "max_decoding_length": self.ours.session.max_target_length}
        results = self.theirs.translate_batch(
            self.sources, given, return_scores=True, **{**limits, "min_decoding_length": 0, **options}
        )
        return [
            [(tuple(self._ids[name] for name in ids), score) for ids, score in zip(*both, strict=True)]
            for both in ((result.hypotheses, result.scores) for result in results)
        ]

    def compare(
        self, ours: DecodeChanges, theirs: dict[str, Any], prefixes: list[list[int]] | None = None
    ) -> list[Output]:
        """Check that both give the same hypotheses and scores, and return them.

        Scores differ a little, since our start token and padding have no probability.
        """
        expected = self.expected(prefixes, **theirs)
        translations = self.ours.translate(TEXTS, target_prefix=prefixes, **ours)
        found = [[(best.ids, best.score) for best in translation.hypotheses] for translation in translations]
        assert [[ids for ids, _ in output] for output in found] == [[ids for ids, _ in output] for output in expected]
        for output, others in zip(found, expected, strict=True):
            assert [score for _, score in output] == pytest.approx([score for _, score in others], rel=5e-3, abs=2e-3)
        return expected


@pytest.fixture(scope="module")
def oracle(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    run = store.run(steps=100)
    folder = tmp_path_factory.mktemp("ctranslate2") / "model"
    convert_run(run, folder, "float32")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    theirs = ctranslate2.Translator(str(folder), intra_threads=1, inter_threads=1)
    yield Oracle(run_translator(run, run.load_model()), theirs)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_target_prefix(oracle: Oracle, beam_size: int) -> None:
    beams = {"beam_size": beam_size}
    free = oracle.expected(**beams)
    # prefixes of 1 to 5 tokens, of the translations of other sentences
    prefixes = [list(output[0][0][: 1 + index % 5]) for index, output in enumerate(reversed(free))]
    for penalty in (0.4, 1.0):
        changes: Any = {"length_penalty": penalty}
        forced = oracle.compare({"beam_size": beam_size, **changes}, {**beams, **changes}, prefixes)
        assert [output[0][0] for output in forced] != [output[0][0] for output in free]
