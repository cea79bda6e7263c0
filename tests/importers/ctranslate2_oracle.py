"""CTranslate2 itself as the measure of imported models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest

from edgeformer_runtime.translator import AnyTranslator
from tests.importers.ctranslate2_models import WORDS

SCORE_TOLERANCE = 1e-4
LANGUAGES: dict[str, Any] = {"source_language": "en", "target_language": "fr"}


def sources(count: int) -> list[list[str]]:
    """Random tokens, some of which are unknown; always the same."""
    random = np.random.default_rng(0)
    words = [f"w{index}" for index in range(WORDS + 5)]
    return [random.choice(words, random.integers(1, 9)).tolist() for _ in range(count)]


def compare(
    ours: AnyTranslator, folder: Path, tokens: Sequence[list[str]], *, around: bool = True, longest: int = 16
) -> None:
    """Check that both give the same tokens and scores, greedily and with four beams.

    Args:
        ours: translates with the imported model.
        folder: the original model.
        tokens: tokens of the sources.
        around: whether callers of CTranslate2 must add what is around the tokens of a source.
        longest: maximum length of translations of any length.
    """
    theirs = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1, inter_threads=1)
    target, text = ours.target_tokenizer, ours.target_tokenizer.text
    prefix = target.tokens(target.target_prefix(*LANGUAGES.values()))
    before, after = (text.resolved(part, *LANGUAGES.values()) for part in (text.source_prefix, text.source_suffix))
    given = [[*before, *source, *after] if around else source for source in tokens]
    texts = [" ".join(source) for source in tokens]
    for beam_size, shortest, limit in ((1, 0, longest), (4, 0, longest), (4, 8, 8)):
        least, most = max(0, shortest - len(prefix)), limit - len(prefix)
        found = ours.translate(texts, beam_size=beam_size, min_length=least, max_length=most, return_scores=True)
        limits = {"min_decoding_length": shortest, "max_decoding_length": limit}
        expected = theirs.translate_batch(
            given, [prefix] * len(given), beam_size=beam_size, return_scores=True, **limits
        )
        compared = [
            (translation, other)
            for translation, other in zip(found, expected, strict=True)
            # At the maximum length, CTranslate2 chooses from all beams, beside what is finished.
            if beam_size == 1 or shortest == limit or len(other.hypotheses[0]) < limit
        ]
        for translation, other in compared:
            assert [*prefix, *target.tokens(translation.best.ids)] == other.hypotheses[0]
            assert translation.best.score == pytest.approx(other.scores[0], abs=SCORE_TOLERANCE)
        assert len({translation.best.ids for translation in found}) > 10
        assert len(compared) > len(found) // 20
