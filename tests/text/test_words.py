"""Words of a translation, and what they were translated from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_runtime.translator import Translator
from edgeformer_text.alignment import aligned, joined
from edgeformer_text.options import TextOptions
from edgeformer_text.surface import SurfaceChange
from edgeformer_text.text_translator import TextTranslator
from tests.text.attended import WordTokenizer, join

TEXTS = st.lists(
    st.sampled_from(["le", "Chien", "d'eau", "l’", "犬", " ", "  ", "\u00a0", ".", "!", ", ", "3", "IPod", "-", "«"]),
    max_size=8,
).map("".join)


@given(TEXTS, TEXTS, st.sampled_from(["le chien.", "LE CHIEN COURT.", "Le chien ?", "le", "..."]))
def test_words_together_are_the_text(text_translators: list[TextTranslator], one: str, two: str, source: str) -> None:
    """Written word by word, as with tags or placeholders, a translation is what it is as a whole."""
    translated = one + " " + two
    plain, detailed = (join(texts.split(source), lambda sentence: translated) for texts in text_translators)
    assert detailed.text == plain.text
    assert [sentence.target_span for sentence in detailed.sentences] == [
        sentence.target_span for sentence in plain.sentences
    ]


@pytest.fixture(scope="module")
def text_translators(translator: Translator) -> list[TextTranslator]:
    return [TextTranslator(translator, TextOptions(word_details=is_detailed)) for is_detailed in (False, True)]


def divided(
    source: str, tokens: list[str], attention: Any = None, scores: Any = None, text: str = "", added: str = ""
) -> Any:
    """The words of a translation that has certain tokens."""
    tokenizer: Any = WordTokenizer()
    ids = tuple(map(tokenizer.id, tokens))
    hypothesis = TextHypothesis(text or tokenizer.decode(ids), tuple(tokens), ids, 0.0, True, scores)
    change = SurfaceChange(len(hypothesis.text), added)
    return aligned(source, range(len(source) + 1), hypothesis, attention, (tokenizer, tokenizer), change)


@pytest.mark.parametrize("added", ["!", " !"])
def test_added_punctuation_belongs_to_that_of_the_source(added: str) -> None:
    sentence = divided("un chien !", ["un", "chien"], added=added)
    assert [word.text for word in sentence.words] == ["un", "chien", "!"]
    assert sentence.tokens == [(0, 2), (3, 8), (9, 10)]
    assert sentence.source_words == [(0, 2), (3, 8), (9, 10)]
    assert sentence.words[-1].shares.tolist() == [0, 0, 1]


WORDS = st.lists(st.sampled_from(["un", "chien", "rouge", "a", "eau", "3"]), min_size=1, max_size=6)


@given(WORDS)
def test_without_attention_the_words_of_a_copy_come_from_their_places(words: list[str]) -> None:
    source = " ".join(words)
    sentence = divided(source, words)
    assert joined(sentence.words, sentence.end) == source
    assert [source[slice(*span)] for span in sentence.sources] == words
    starts = [span[0] for span in sentence.sources]
    assert starts == sorted(set(starts))


@given(WORDS, st.data())
def test_with_attention_each_word_comes_from_what_its_tokens_attend_to(words: list[str], data: st.DataObject) -> None:
    """Whatever its end token and those of the source attend to."""
    source, order = " ".join(words), data.draw(st.permutations(range(len(words))))
    target = [words[place] for place in order]
    weights = np.full((len(words) + 1, len(words) + 1), 0.01, np.float32)
    weights[range(len(words)), order] = 0.4
    weights[:, -1] = weights[-1] = 0.5
    scores = tuple(-float(place) for place in range(len(words) + 1))
    sentence = divided(
        source, target, Attention((*words, "</s>"), (*target, "</s>"), weights, True, range(len(words))), scores
    )
    starts = [len(" ".join(words[:place])) + bool(place) for place in range(len(words))]
    assert [span[0] for span in sentence.sources] == [starts[place] for place in order]
    assert [word.shares.sum() for word in sentence.words] == pytest.approx([1.0] * len(words))
    assert [word.probability for word in sentence.words] == pytest.approx(np.exp(scores[:-1]))


def test_the_tokens_of_a_text_with_other_characters_are_spread_over_it() -> None:
    sentence = divided("un chien", ["un", "chien"], text="?? ?????", scores=(-1.0, -2.0))
    first, *_, last = sentence.words
    assert [first.probability, last.probability] == pytest.approx(np.exp([-1.0, -2.0]))
