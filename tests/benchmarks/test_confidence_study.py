"""The study of confidence correlates it with the quality of translations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edgeformer.errors import ConfigError
from edgeformer_bench.text.confidence import main, ranks, usefulness
from edgeformer_runtime.translator import Translator

REFERENCES = ["the old dog runs near the sea", "two men play chess in the park", "a green river", "the machine turns"]
OUTPUTS = ["the old dog runs near the sea", "two men play in a park", "a river", "xyz"]


def test_equal_values_share_a_rank() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_confidence_that_orders_sentences_by_quality_is_found_out() -> None:
    good = usefulness([0.9, 0.5, 0.3, 0.1], OUTPUTS, REFERENCES)
    assert good.spearman == pytest.approx(1)
    assert good.pearson is not None
    assert 0.9 < good.pearson < 1
    assert good.most_confident_bleu > good.bleu > good.least_confident_bleu
    bad = usefulness([0.1, 0.3, 0.5, 0.9], OUTPUTS, REFERENCES)
    assert bad.spearman == pytest.approx(-1)
    assert bad.most_confident_bleu == good.least_confident_bleu
    assert (good.doubtful, bad.doubtful) == (0.5, 0.5)
    assert good.other_chrf == bad.doubtful_chrf
    assert good.other_chrf is not None
    assert good.doubtful_chrf is not None
    assert good.other_chrf > good.doubtful_chrf
    none = usefulness([0.5] * 4, OUTPUTS, REFERENCES, min_confidence=0)
    assert (none.doubtful, none.doubtful_chrf) == (0, None)
    same = usefulness([0.5] * 4, OUTPUTS, REFERENCES)
    assert (same.pearson, same.spearman) == (None, None)
    with pytest.raises(ConfigError, match="at least 4 sentences, but there are 2"):
        usefulness([0.1, 0.2], OUTPUTS[:2], REFERENCES[:2])


def test_a_test_set_is_measured(small_bundle: Path, tmp_path: Path, translator: Translator) -> None:
    texts = ["The old dog runs.", "two men play", "A café, 14 times!", "The machine.", "A green river sings."]
    translations = translator.translate(texts, return_token_scores=True)
    references = [translation.text for translation in translations[:3]] + ["Oui.", "Non !"]
    (tmp_path / "source").write_text("\n".join([*texts, " "]) + "\n", encoding="utf-8")
    (tmp_path / "reference").write_text("\n".join([*references, ""]) + "\n", encoding="utf-8")
    files = ["--source", str(tmp_path / "source"), "--reference", str(tmp_path / "reference")]
    record = json.loads(CliRunner().invoke(main, [str(small_bundle), *files, "--json"]).output)
    confidence = [translation.best.confidence or 0.0 for translation in translations]
    expected = usefulness(confidence, [translation.text for translation in translations], references)
    assert record["sentences"] == 5
    assert record["spearman"] == pytest.approx(expected.spearman, abs=1e-5)
    assert record["bleu"] == pytest.approx(expected.bleu)
    output = CliRunner().invoke(main, [str(small_bundle), *files]).output
    assert f"{expected.least_confident_bleu:.2f}" in output
    assert "5 sentences" in output
