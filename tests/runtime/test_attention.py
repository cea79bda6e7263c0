"""Attention weights of translations."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from edgeformer_runtime.attention import Attention, attention_weights
from edgeformer_runtime.contract import ATTENTION_FILE, DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, opened_graphs, without_attention
from tests.toy import Ids

TEXTS = [
    "The old dog runs 2 times near the sea.",
    "dog",
    "The green river sings 350 times near the small house, and the old machine turns 14 times near the café.",
    "The small machine.",
]
SAME = 1e-5
"""float32 sums in another order."""


def pairs(translator: Translator, texts: list[str]) -> tuple[list[Ids], list[Ids]]:
    """Source ids, and ids of their translations, each with its end token."""
    translations = translator.translate(texts, beam_size=2)
    assert all(translation.best.finished for translation in translations)
    eos = translator.session.special.eos
    sources = [translation.source.ids for translation in translations]
    return sources, [(*translation.best.ids, eos) for translation in translations]


@pytest.mark.parametrize("max_length", [None, 2])
def test_every_target_token_has_one_unit_of_weight(translator: Translator, max_length: int | None) -> None:
    translations = translator.translate(TEXTS, beam_size=2, max_length=max_length)
    end = translator.source_tokenizer.tokens([translator.session.special.eos])[0]
    for text, translation, attention in zip(TEXTS, translations, translator.attention(translations), strict=True):
        best = translation.best
        source = translator.source_tokenizer
        assert attention.finished == best.finished == (max_length is None)
        assert attention.target_tokens == (*best.tokens, *[end] * best.finished)
        assert attention.source_tokens == (*source.tokens(source.encode(text)), end)
        assert attention.weights.shape == (len(attention.target_tokens), len(attention.source_tokens))
        assert attention.weights.dtype == np.float32
        assert attention.weights.min() >= 0
        np.testing.assert_allclose(attention.weights.sum(1), 1, atol=SAME)
        assert max_length is None or len(attention.weights) == max_length


@pytest.mark.parametrize("max_batch_tokens", [1, 40, 4096])
def test_a_pair_has_the_same_weights_alone_and_among_others(translator: Translator, max_batch_tokens: int) -> None:
    sources, targets = pairs(translator, TEXTS)
    targets = [ids[: 4 * (index + 1)] for index, ids in enumerate(targets)]
    assert len({*map(len, sources)}) == len({*map(len, targets)}) == len(TEXTS)
    order = random.Random(0).sample(range(len(TEXTS)), len(TEXTS))
    among = attention_weights(
        translator.session, [sources[n] for n in order], [targets[n] for n in order], max_batch_tokens
    )
    for index, weights in zip(order, among, strict=True):
        (alone,) = attention_weights(translator.session, [sources[index]], [targets[index]])
        np.testing.assert_allclose(weights, alone, atol=SAME)


def test_any_pair_can_be_asked_for(translator: Translator) -> None:
    """Targets that no search has found, one without a token among them."""
    sources, targets = pairs(translator, TEXTS[:2])
    swapped = attention_weights(translator.session, sources, [targets[1], ()])
    assert [weights.shape for weights in swapped] == [(len(targets[1]), len(sources[0])), (0, len(sources[1]))]
    np.testing.assert_allclose(swapped[0].sum(1), 1, atol=SAME)
    assert attention_weights(translator.session, sources[:1], [()])[0].shape == (0, len(sources[0]))
    assert attention_weights(translator.session, [], []) == []


def test_blank_texts_have_none(translator: Translator) -> None:
    texts = ["", TEXTS[1], " "]
    translations = translator.translate(texts)
    blank, attention, other = translator.attention(translations)
    for empty in (blank, other):
        assert (empty.source_tokens, empty.target_tokens, empty.weights.shape) == ((), (), (0, 0))
        assert empty.alignment == ()
    np.testing.assert_array_equal(attention.weights, translator.attention(translations[1:2])[0].weights)


def test_special_tokens_alone_are_aligned_with_nothing() -> None:
    ones, no_text = np.ones((1, 2), np.float32), range(1, 1)
    assert Attention(("<s>", "</s>"), ("a",), ones, finished=False, text_tokens=no_text).alignment == ()
    assert Attention(("a", "</s>"), ("</s>",), ones, finished=True, text_tokens=range(1)).alignment == ()


def test_a_bundle_without_weights_translates_and_says_what_it_lacks(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    without_attention(bundle)
    without = Translator.open(bundle, threads=1)
    assert not without.bundle.has_attention
    translations = without.translate(TEXTS)
    assert translations == Translator.open(small_bundle, threads=1).translate(TEXTS)
    with pytest.raises(BundleError, match="has no attention weights: its model, of family `transformer`"):
        without.attention(translations)


def test_the_graph_is_opened_on_demand_and_once(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opened_graphs(monkeypatch)
    translator = Translator.open(small_bundle, threads=1)
    translations = translator.translate(TEXTS)
    assert opened == [DECODER_FILE, ENCODER_FILE]
    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(translator.attention, translations) for _ in range(8)]
    for result in results:
        for attention, expected in zip(result.result(), results[0].result(), strict=True):
            np.testing.assert_array_equal(attention.weights, expected.weights)
    assert opened[2:] == [ATTENTION_FILE]


def test_a_target_beyond_the_limit_is_refused(translator: Translator) -> None:
    limit = translator.session.max_target_length
    sources, _ = pairs(translator, TEXTS[:1])
    with pytest.raises(ValueError, match=f"a target has {limit + 1} tokens, more than the model's {limit}"):
        attention_weights(translator.session, sources, [[5] * (limit + 1)])


def test_a_bundle_that_changed_since_it_was_opened_is_refused(
    small_bundle: Path, small_bundle_int8: Path, tmp_path: Path
) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    translator = Translator.open(bundle, threads=1)
    translations = translator.translate(TEXTS)
    (bundle / ATTENTION_FILE).write_bytes((small_bundle_int8 / ATTENTION_FILE).read_bytes())
    with pytest.raises(BundleError, match=r"has changed since it was opened: `attention\.onnx` has"):
        translator.attention(translations)
