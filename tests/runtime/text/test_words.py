"""Words of a translation, and what they were translated from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.text.alignment import AlignedSentence, Word, _source_spans, aligned, best_gap, best_run, joined
from edgeformer_runtime.text.block import Span
from edgeformer_runtime.text.options import TextOptions
from edgeformer_runtime.text.surface import Finish
from edgeformer_runtime.text.text_translator import TextTranslator
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_runtime.translator import Translator
from tests.runtime.text.attended import WordTokenizer
from tests.runtime.text.copies import join

EIGHTHS = st.integers(0, 8).map(lambda share: share / 8)
"""Numbers whose sums are exact."""
SPANS = st.tuples(st.integers(0, 12), st.integers(0, 4)).map(lambda pair: (pair[0], sum(pair)))


@st.composite
def sentences(draw: st.DrawFn) -> AlignedSentence:
    tokens = draw(st.lists(SPANS, min_size=1, max_size=5))
    shares = st.lists(EIGHTHS, min_size=len(tokens), max_size=len(tokens))
    words = [Word("x", " ", np.array(row, np.float32)) for row in draw(st.lists(shares, max_size=4))]
    return AlignedSentence(words, "", tokens, draw(st.lists(SPANS.filter(lambda span: span[0] < span[1]), max_size=4)))


def share(sentence: AlignedSentence, word: Word, span: Span) -> float:
    """The attention of a word on tokens whose middle is in a span."""
    middles = [(first + last) / 2 for first, last in sentence.tokens]
    return float(sum(each for each, middle in zip(word.shares, middles, strict=True) if span[0] <= middle < span[1]))


@given(sentences(), SPANS)
def test_attention_on_a_span_is_that_on_its_tokens(sentence: AlignedSentence, span: Span) -> None:
    assert sentence.shares(*span).tolist() == [share(sentence, word, span) for word in sentence.words]
    own = sentence.on(*span)
    assert own.sum() == pytest.approx(0 if not own.any() else 1)
    assert [bool(each) for each in own] == [span[0] <= (a + b) / 2 < span[1] for a, b in sentence.tokens]
    assert len(set(own[own > 0].tolist())) <= 1
    for word, source in zip(sentence.words, sentence.sources, strict=True):
        best = max((share(sentence, word, each), place) for place, each in enumerate([*sentence.source_words, (0, 0)]))
        if best[0]:
            assert source == sentence.source_words[best[1]]
        else:
            assert source is None


@given(st.lists(st.integers(-4, 4), max_size=8))
def test_the_best_run_has_the_largest_sum(gains: list[int]) -> None:
    runs = [(a, b) for a in range(len(gains)) for b in range(a + 1, len(gains) + 1)]
    best = max([0, *(sum(gains[a:b]) for a, b in runs)])
    largest = [run for run in runs if sum(gains[slice(*run)]) == best]
    expected = min(largest, key=lambda run: (run[1], -run[0])) if best else None
    assert best_run(np.array(gains, np.float64)) == expected


@given(sentences(), st.integers(0, 16), st.data())
def test_the_best_gap_separates_what_is_before_from_what_is_behind(
    sentence: AlignedSentence, place: int, data: st.DataObject
) -> None:
    gaps = sorted(data.draw(st.sets(st.integers(0, len(sentence.words)), min_size=1)))

    def score(gap: int) -> float:
        before = sum(share(sentence, word, (-1, place)) for word in sentence.words[:gap])
        behind = sum(share(sentence, word, (place, 99)) for word in sentence.words[gap:])
        return before + behind

    best = max(map(score, gaps))
    assert best_gap(sentence, place, np.array(gaps)) == min(gap for gap in gaps if score(gap) == best)


@given(st.integers(0, 4).flatmap(lambda count: st.permutations(range(count))), st.sampled_from(["", " "]))
def test_words_in_another_order_stay_apart(order: list[int], space: str) -> None:
    first = 4 - len(order)
    words = [Word(text, " " if index else space, np.zeros(0, np.float32)) for index, text in enumerate("abcd")]
    found = AlignedSentence(words, "", [], []).reordered(first, order)
    assert joined(found.words, "") == space + " ".join(
        ["abcd"[index] for index in (*range(first), *(first + index for index in order))]
    )


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
    finish = Finish(len(hypothesis.text), added)
    return aligned(source, range(len(source) + 1), hypothesis, attention, (tokenizer, tokenizer), finish)


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


def test_tokens_stand_for_characters_without_the_white_space_around_them() -> None:
    def spans(text: str, found: list[Span]) -> list[Span]:
        tokenizer: Any = SimpleNamespace(spans=lambda text: found)
        return _source_spans(tokenizer, text)

    found = [(0, 3), (3, 7), (7, 8), (8, 8), (8, 13), (8, 13)]
    assert spans("the dogs  run", found) == [(0, 3), (4, 7), (7, 8), (8, 8), (10, 13), (13, 13)]
    assert spans("  a", [(0, 2), (2, 3)]) == [(0, 0), (2, 3)]
