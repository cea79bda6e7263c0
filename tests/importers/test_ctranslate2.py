"""CTranslate2's models: imported ones translate as CTranslate2 itself does, token for token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store import Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

import ctranslate2

from edgeformer.importers.model import ImportedModel
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import run_translator
from edgeformer.train.run import Run
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_export.export import export_run
from edgeformer_export.quantize.static import quantize_columns
from edgeformer_runtime.translator import AnyTranslator, Translator
from tests import factory
from tests.importers.ctranslate2_models import MODELS, SHARED, WORDS, write_model_file

SCORE_TOLERANCE = 1e-4
LANGUAGES = {"source_language": "en", "target_language": "fr"}
COUNTS = [200, pytest.param(1000, marks=pytest.mark.slow)]


def import_model(folder: Path, out: Path) -> tuple[ImportedModel, Run]:
    model = read_model(folder, "ctranslate2", **LANGUAGES)
    return model.model, write_run(model.model, out, model.origin, text=["w1 w2"])


def sources(count: int) -> list[list[str]]:
    """Random tokens, some of which are unknown; always the same."""
    random = np.random.default_rng(0)
    words = [f"w{index}" for index in range(WORDS + 5)]
    return [random.choice(words, random.integers(1, 9)).tolist() for _ in range(count)]


def compare(ours: AnyTranslator, folder: Path, tokens: Sequence[list[str]], *, around: bool = True) -> None:
    """Check that both give the same tokens and scores, greedily and with four beams.

    Args:
        ours: translates with the imported model.
        folder: the original model.
        tokens: tokens of the sources.
        around: whether callers of CTranslate2 must add what is around the tokens of a source.
    """
    theirs = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1, inter_threads=1)
    target, text = ours.target_tokenizer, ours.target_tokenizer.text
    prefix = target.tokens(target.target_prefix(*LANGUAGES.values()))
    before, after = (text.resolved(part, *LANGUAGES.values()) for part in (text.source_prefix, text.source_suffix))
    given = [[*before, *source, *after] if around else source for source in tokens]
    texts = [" ".join(source) for source in tokens]
    for beam_size, shortest, longest in ((1, 0, 16), (4, 0, 16), (4, 8, 8)):
        found = ours.translate(texts, beam_size=beam_size, min_length=shortest, max_length=longest, return_scores=True)
        limits = {"min_decoding_length": shortest, "max_decoding_length": longest}
        expected = theirs.translate_batch(
            given, [prefix] * len(given), beam_size=beam_size, return_scores=True, **limits
        )
        compared = [
            (translation, other)
            for translation, other in zip(found, expected, strict=True)
            # At the maximum length, CTranslate2 chooses from all beams, beside what is finished.
            if beam_size == 1 or shortest == longest or len(other.hypotheses[0]) < longest
        ]
        for translation, other in compared:
            assert target.tokens(translation.best.ids) == other.hypotheses[0]
            assert translation.best.score == pytest.approx(other.scores[0], abs=SCORE_TOLERANCE)
        assert len({translation.best.ids for translation in found}) > len(found) // 20
        assert len(compared) > len(found) // 10


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", MODELS)
def test_translations_are_those_of_ctranslate2(name: str, count: int, tmp_path: Path) -> None:
    folder = MODELS[name](tmp_path / "model")
    imported, run = import_model(folder, tmp_path / "run")
    settings = json.loads((folder / "config.json").read_text())
    compare(
        run_translator(run, run.load_model()),
        folder,
        sources(count),
        around=not (settings["add_source_bos"] or settings["add_source_eos"]),
    )
    assert run.info.generation.beam_size == 2
    assert bool(imported.notes) == (name in {"t5", "t5_per_layer", "m2m"})
