"""Log-probabilities of given translations, and ``edgeformer score``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import InputError, OptionError, Translator
from edgeformer_runtime.search.forced_steps import score_batches
from tests.commands import error, run
from tests.runtime.test_search import FEW, MODELS, SOURCES
from tests.toy import Ids, ToySession

TEXTS = ["The old dog runs 2 times near the sea.", "The green river turns 14 times near the house.", "The dog sings."]


@FEW
@given(MODELS, st.lists(st.tuples(SOURCES, SOURCES), min_size=1, max_size=6), st.sampled_from([1, 8, 4096]))
def test_scores_are_those_of_the_steps_alone_and_together(
    session: ToySession, pairs: list[tuple[Ids, Ids]], max_batch_tokens: int
) -> None:
    pairs = [(source, tuple(token % session.vocab_size for token in target)) for source, target in pairs]
    found = {index: scores for batch in score_batches(session, pairs, max_batch_tokens) for index, scores in batch}
    for index, (source, target) in enumerate(pairs):
        logits = [session.logits(source, target[:step]).astype(np.float64) for step in range(len(target))]
        for row in logits:
            row[list(session.special.suppress)] = -np.inf
        expected = [row[token] - np.log(np.exp(row).sum()) for row, token in zip(logits, target, strict=True)]
        np.testing.assert_allclose(found[index], expected, atol=1e-6)
        ((_, alone),) = next(score_batches(session, [(source, target)]))
        np.testing.assert_array_equal(found[index], alone)


def test_scores_of_a_translation_add_up_to_its_score(translator: Translator) -> None:
    translations = translator.translate(TEXTS, length_penalty=0.0)
    scores = translator.score(TEXTS, [translation.best.ids for translation in translations])
    for translation, score in zip(translations, scores, strict=True):
        assert score.log_probability == pytest.approx(translation.score, abs=1e-4)
        assert score.log_probability == pytest.approx(sum(score.token_scores))
        assert score.mean == pytest.approx(score.log_probability / len(score.ids))
        assert score.ids == (*translation.best.ids, translator.session.special.eos)
        assert score.tokens == (*translation.tokens, "</s>")
    for text, translation, score in zip(TEXTS, translations, scores, strict=True):
        (alone,) = translator.score([text], [translation.best.ids])
        assert alone.token_scores == pytest.approx(score.token_scores, abs=1e-4)
    without = translator.score(TEXTS, [translation.tokens for translation in translations], end_token=False)
    for score, shorter in zip(scores, without, strict=True):
        assert shorter.token_scores == pytest.approx(score.token_scores[:-1], abs=1e-5)
    other = translator.score(TEXTS[:1], [translations[1].text])
    assert other[0].log_probability < scores[0].log_probability - 1


def test_text_is_encoded_and_blank_text_has_blank_translations(translator: Translator) -> None:
    text, blank, empty = translator.score([TEXTS[0], " ", TEXTS[1]], ["green dog", "", ""])
    assert text.ids == (*translator.target_tokenizer.encode("green dog"), translator.session.special.eos)
    assert (blank.token_scores, blank.log_probability, blank.mean) == ((), 0.0, 0.0)
    assert empty.tokens == ("</s>",)
    with pytest.raises(InputError, match="Text 2 is blank, but its translation is not"):
        translator.score([TEXTS[0], " "], ["", "dog"])
    with pytest.raises(InputError, match="Text 1 has a translation of 81 tokens, but the model writes at most 80"):
        translator.score([TEXTS[0]], [[5] * 80])
    with pytest.raises(OptionError, match="There must be one translation per text, 3, but there are 1"):
        translator.score(TEXTS, ["dog"])
    with pytest.raises(OptionError, match="`targets` must be a list with one translation per text, but is 'dog'"):
        translator.score(TEXTS, "dog")
    with pytest.raises(OptionError, match="The translation of text 2: `nowhere` is not a token"):
        translator.score(TEXTS, ["", ["nowhere"], ""])


def test_the_command_prints_one_line_per_pair(
    small_bundle: Path, translator: Translator, device: str, tmp_path: Path
) -> None:
    targets = ["dog green", "", "river !"]
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("\n".join([TEXTS[0], "", TEXTS[1]]), encoding="utf-8")
    target.write_text("\n".join(targets) + "\n", encoding="utf-8")
    scores = translator.score([TEXTS[0], "", TEXTS[1]], targets)
    options = ("--source", source, "--target", target, "--device", device)
    result = run("score", small_bundle, *options)
    assert result.stdout == "".join(f"{score.log_probability:.4f}\t{score.mean:.4f}\n" for score in scores)
    result = run("score", small_bundle, *options, "--json", "--no-end-token")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    for record, score in zip(records, scores, strict=True):
        assert record["token_scores"] == pytest.approx(score.token_scores[:-1], abs=1e-5)
        assert record["tokens"] == list(score.tokens[:-1])
    target.write_text("dog\n", encoding="utf-8")
    assert "has fewer lines than" in error("score", small_bundle, "--source", source, "--target", target)
    target.write_text("dog\ndog\ndog\n", encoding="utf-8")
    assert error("score", small_bundle, "--source", source, "--target", target).startswith("Text 2 is blank")


def test_every_translation_has_a_confidence_also_an_empty_one(translator: Translator) -> None:
    text, blank = translator.translate([TEXTS[0], " "], return_token_scores=True)
    assert text.best.token_scores
    assert text.best.confidence == pytest.approx(math.exp(sum(text.best.token_scores) / len(text.best.token_scores)))
    assert (blank.best.token_scores, blank.best.confidence) == ((), 1.0)
    assert translator.translate(["", TEXTS[0]])[0].best.confidence is None
