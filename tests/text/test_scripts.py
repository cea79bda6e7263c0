"""Final punctuation and first letters in every script."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest

from edgeformer_text.lexicon import base_code
from edgeformer_text.surface import lacks_period, repaired, surface_change

regex = pytest.importorskip("regex", reason="regex is not installed")

MARKS = [chr(code) for code in range(0x10000) if regex.match(r"\p{Sentence_Terminal}", chr(code))]
LETTERS = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Lo"][::6000]


def finished(source: str, text: str, language: str = "en") -> str:
    return surface_change(source, text, language, is_upper=False, match=True, repeats=4).apply(text)


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
