"""Final punctuation and first letters in every script."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest

from edgeformer_runtime.text.lexicon import base_code
from edgeformer_runtime.text.surface import finish, lacks_period, period, repaired

regex = pytest.importorskip("regex", reason="the extra `moses` is not installed")

MARKS = [chr(code) for code in range(0x10000) if regex.match(r"\p{Sentence_Terminal}", chr(code))]
LETTERS = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Lo"][::6000]
LANGUAGES = ["am", "ar", "bn", "bo", "de", "el", "en", "fa", "fr", "hi", "hy", "ja", "km", "lo", "my", "th", "ur", "zh"]


def finished(source: str, text: str, language: str = "en") -> str:
    return finish(source, text, language, is_upper=False, match=True, repeats=4).apply(text)


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{ord(mark):04x}")
def test_a_sentence_that_ends_with_a_mark_of_any_script_keeps_that_of_its_translation(mark: str) -> None:
    name = unicodedata.name(mark, "")
    expected = "?" if "QUESTION" in name else "!" if "EXCLAMATION" in name else "."
    for letter in LETTERS:
        for closing in ("", '"', "」", "»", ")"):
            source = f"{letter} {letter}{mark}{closing}"
            assert not lacks_period(source)
            assert finished(source, "This is a book.") == "This is a book."
            if "INTERROBANG" not in name and "EXCLAMATION QUESTION" not in name:
                assert finished(source, "This is a book") == f"This is a book{expected}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_final_punctuation_that_is_added_is_known_as_such(language: str) -> None:
    word = {"el": "Αυτό", "th": "นี่", "lo": "ນີ້"}.get(language, "Dog")
    for source in ("A dog.", "A dog?", "A dog!", "A dog..."):
        text = finished(source, word, language)
        assert text == word + period(language) if source == "A dog." else text != word
        assert finished(source, text, language) == text
        assert finished("a dog of mine" if source == "A dog." else source, text, language) in (text, word)


def test_nothing_is_removed_where_sentences_have_no_mark() -> None:
    for source in ("นี่คือหนังสือ", "ນີ້ແມ່ນປື້ມ", "འདི་དེབ་རེད།", "“นี่คือหนังสือ”"):
        for text in ("This is a book.", "Is it?", "No!"):
            assert finished(source, text) == text


@pytest.mark.parametrize("text", ["Monday", "German or French", "I", "É", "Ich", "Ǆ", "Van", "ძაღლი", "iPhone", "ß"])
@pytest.mark.parametrize("source", ["lundi", "Lundi", "ლუნდი", "月", "lUNDI"])
def test_first_letters_are_only_raised(source: str, text: str) -> None:
    written = finished(source, text)
    assert written in (text, text[:1].title() + text[1:])
    if not source[:1].isupper():
        assert written == text


def test_codes_of_three_letters_are_those_of_two() -> None:
    pairs = {
        "hin_Deva": "hi",
        "zho_Hans": "zh",
        "arb_Arab": "ar",
        "pes": "fa",
        "deu": "de",
        "en-US": "en",
        "": "",
        "xx": "xx",
    }
    assert {code: base_code(code) for code in pairs} == pairs


@pytest.mark.parametrize("sign", [".", "?", "。", ";", "α;", ")", "!)", "\ufffd", "…»"])
def test_signs_in_a_row_take_linear_time(sign: str) -> None:
    start = time.process_time()
    for text in (sign * 20_000, f"{sign * 20_000}x"):
        finished(text, text)
        finished("x", text)
        repaired("°", text)
    assert time.process_time() - start < 2
