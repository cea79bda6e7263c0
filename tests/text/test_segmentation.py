"""Splitting a text into sentences, and putting it together again."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_OPTION
from edgeformer_runtime.translator import Translator
from edgeformer_text import segmentation
from edgeformer_text.glossary import Glossary
from edgeformer_text.options import TextOptions
from edgeformer_text.segmentation import sentence_spans
from edgeformer_text.text_translator import TextTranslator
from tests.text.attended import WordTranslator, join
from tests.web.rules import RULES

PIECES = [
    *("Dr. Who runs.", "HELLO WORLD", "a", "{x}", "%s", "https://a.b/c?d=e.", ":smile:", "J.\xa0S. x", "1. "),
    *("- ", "> ", "\n", "\r\n", "\n\n", " ", "\t", "\u2028", "\xa0", "\x85", "…", "。", "?!", "«"),
    *("é", "e\u0301", "👩\u200d👩", "ß", "\u212a", "İ", "ﬁ"),
]
UNREAD = "\u00ad\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
READ_TEXTS = st.text(max_size=80).map(lambda text: text.translate(dict.fromkeys(map(ord, UNREAD))))
TEXTS = st.one_of(READ_TEXTS, st.lists(st.sampled_from(PIECES), max_size=20).map("".join))


@pytest.fixture(scope="module")
def text_translator(translator: Translator) -> TextTranslator:
    return TextTranslator(translator)


def sentences(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, language)]


@given(text=TEXTS)
@example(text="%S%s")
@example(text="A{0 }{0}{0}")
def test_copied_sentences_give_the_text_back(text_translator: TextTranslator, text: str) -> None:
    plan = text_translator.split(text)
    result = join(plan)
    assert result.text == text
    for sentence in result.sentences:
        assert sentence.source_span == sentence.target_span


@given(text=TEXTS)
def test_what_is_between_sentences_is_kept(text_translator: TextTranslator, text: str) -> None:
    result = join(text_translator.split(text), lambda sentence: "Une phrase")
    source_end = target_end = 0
    for sentence in result.sentences:
        assert text[source_end : sentence.source_span[0]] == result.text[target_end : sentence.target_span[0]]
        (_, source_end), (_, target_end) = sentence.source_span, sentence.target_span
    assert text[source_end:] == result.text[target_end:]


@pytest.mark.parametrize(("language", "text", "expected"), RULES["sentences"])
def test_sentences(language: str, text: str, expected: list[str]) -> None:
    assert sentences(text, language) == expected


def test_without_sentencex_lines_are_sentences_and_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    segmentation.segmenter.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"pip install 'edgeformer\[text\]'"):
            assert sentences("One. Two.\n- Three.") == ["One. Two.", "Three."]
        assert sentences("One. Two.") == ["One. Two."]  # warned once
    finally:
        segmentation.segmenter.cache_clear()


class TestLongSentences:
    @pytest.mark.parametrize(
        "text",
        [
            "The dog runs, and the cat sleeps; " * 40,
            "word " * 500,
            "x" * 3000,
            "犬が走る" * 300,
            "e\u0301" * 700,
            "dog https://example.com/" + "a/b" * 400 + " dog",
        ],
    )
    def test_nothing_is_lost_and_every_part_fits(self, translator: Translator, text: str) -> None:
        for limit in (None, 12):
            plan = TextTranslator(translator, TextOptions(max_sentence_tokens=limit)).split(text)
            lengths = [len(source.ids) for source in plan.sentences]
            assert max(lengths) <= (limit or translator.session.max_source_length)
            assert join(plan).text == text
            assert len(plan.sentences) > 1


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "42", "3.14 %", "🐶🐶", "…?!", "https://example.com/a-b", "a.b@example.org", "(www.example.com)"),
        *("{name}", "%s: %d", "$HOME", ":smile:", "<0>", "{{ user.name }}", "1,5 €", "%(count)d"),
    ],
)
def test_text_without_words_is_copied(text_translator: TextTranslator, text: str) -> None:
    plan = text_translator.split(text)
    assert plan.sentences == []
    assert join(plan).text == text


def test_wrong_arguments_are_named(text_translator: TextTranslator, translator: Translator) -> None:
    with pytest.raises(InputError, match="Text 2 must be valid Unicode"):
        text_translator.translate(["dog", "\ud800"])
    with pytest.raises(InputError, match="Text 1 must be a string"):
        text_translator.translate([3])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="must be a list of strings, but is a string"):
        text_translator.translate("dog")
    with pytest.raises(OptionError, match="`format` must be one of text, html, but is 'xml'"):
        text_translator.split("dog", format="xml")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="one translation per sentence, 1, but there are 0"):
        text_translator.split("dog").join([], translator.translate)


@pytest.mark.parametrize(
    ("name", "allowed", "refused", "problem"),
    [
        ("max_sentence_tokens", [None, 2, MAX_OPTION], [-1, 0, 1], "must be at least 2"),
        ("max_sentence_tokens", [], [MAX_OPTION + 1], "must be at most"),
        ("max_repeats", [0, 3, MAX_OPTION], [1, 2], "must be 0 or at least 3"),
        ("max_repeats", [], [-1], "must be at least 0"),
        ("max_repeats", [], [MAX_OPTION + 1], "must be at most"),
        ("capitals", ["auto", "lower", "keep"], ["no", ""], "must be one of auto, lower, keep"),
        ("min_confidence", [None, 0, 0.5, 1], [-0.01, 1.01], "must be from 0 to 1"),
        ("glossary", [None, {}, {"a": "b"}, Glossary({})], ["a", {"a": 1}, {1: "a"}], "must be a Glossary or a"),
    ],
)
def test_options_have_a_range(name: str, allowed: list[Any], refused: list[Any], problem: str) -> None:
    for value in allowed:
        TextOptions(**{name: value}).verify()
    for value in refused:
        with pytest.raises(OptionError, match=f"`{name}` {problem}"):
            TextOptions(**{name: value}).verify()


@pytest.mark.parametrize(
    ("reads", "writes", "wanted", "expected"),
    [
        (100, 200, None, 100),
        (100, 80, None, 60),
        (9, 2, None, 2),
        (100, 80, 90, 90),
        (100, 80, 101, 100),
        (100, 200, 5, 5),
    ],
)
def test_a_sentence_has_as_many_tokens_as_the_model_reads_and_its_translation_has_room(
    reads: int, writes: int, wanted: int | None, expected: int
) -> None:
    translator: Any = WordTranslator()
    translator.session = SimpleNamespace(max_source_length=reads, max_target_length=writes)
    texts = TextTranslator(translator, TextOptions(max_sentence_tokens=wanted))
    lengths = [1 + len(sentence.text.split()) for sentence in texts.split("dog " * 1000).sentences]
    assert expected // 2 <= max(lengths) <= expected
    assert [1 + len(sentence.text.split()) for sentence in texts.split("dog " * (expected - 1)).sentences] == [expected]


def test_invisible_characters_around_sentences_stay(text_translator: TextTranslator) -> None:
    marked = "\ufeff{}\u200b\n\u200f{}\u200e\x00"
    one, two, both = text_translator.translate(["A dog runs.", "Two men.", marked.format("A dog runs.", "Two men.")])
    assert both.text == marked.format(one.text, two.text)


@pytest.mark.parametrize("mark", UNREAD, ids=lambda mark: f"{ord(mark):x}")
def test_invisible_characters_inside_sentences_change_nothing(text_translator: TextTranslator, mark: str) -> None:
    sentences = f"A {mark}dog{mark} runs. Two men.", f"{mark}A do{mark}g runs{mark}.{mark} Two{mark} men{mark}."
    plain, alone, *marked = text_translator.translate(["A dog runs. Two men.", mark, *sentences])
    assert {translation.text.replace(mark, "") for translation in marked} == {plain.text}
    assert alone.text == mark
