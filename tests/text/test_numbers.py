"""The numbers of a sentence and of its translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_text.numbers import FORMATS, adapted, differences, numbers
from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.text.attended import ReversingTranslator, WordTranslator
from tests.web.rules import RULES


@pytest.mark.parametrize(("source", "target", "languages", "wrong"), RULES["numbers"])
def test_other_numbers_are_found_and_other_spellings_are_no_difference(
    source: str, target: str, languages: str, wrong: list[str]
) -> None:
    own, other = languages.split("-")
    assert sorted(differences(source, target, (own, other)).groups) == sorted(wrong)


@pytest.mark.parametrize(
    ("text", "languages", "expected"),
    [
        ("1,250.50", "en-fr", "1\u202f250,50"),
        ("1,250", "en-de", "1.250"),
        ("1.250,50", "de-en", "1,250.50"),
        ("1\u202f250,5", "fr-en", "1,250.5"),
        ("12,5", "fr-en", "12.5"),
        ("3.11", "en-fr", "3.11"),  # a version, a chapter or a decimal number
        ("1.2.3", "en-fr", "1.2.3"),
        ("3:30 p.m.", "en-fr", "15\u00a0h\u00a030"),
        ("12 am", "en-de", "0:00"),
        ("15h30", "fr-en", "15:30"),
        ("3:30", "en-fr", "3:30"),
        ("2nd", "en-fr", "2e"),
        ("1er", "fr-en", "1st"),
        ("22e", "fr-en", "22nd"),
        ("1,250.50", "en-ja", "1,250.50"),
        ("٣٫٥", "ar-en", "3٫5"),
        ("1,250", "xx-fr", "1,250"),
        ("12/31/2020", "en-fr", "12/31/2020"),
        ("-1,250", "en-fr", "-1\u202f250"),
    ],
)
def test_numbers_are_written_as_the_target_language_does(text: str, languages: str, expected: str) -> None:
    own, other = languages.split("-")
    assert adapted(text, (own, other), is_amount=False) == expected
    assert differences(text, expected, (own, other)).groups == ()


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("1 299,50 € et 2 000 pages", "fr", ["1 299,50", "2 000"]),
        ("1,299.50 on May 5 300 people", "en", ["1,299.50", "5", "300"]),
        ("Call +1 (555) 010-9999 (or 01 23 45 67).", "en", ["+1 (555) 010-9999", "01 23 45 67"]),
        ("at 3:30 p.m. on 12/31/2020, 10–20 of -5 °C", "en", ["3:30 p.m.", "12/31/2020", "10–20", "-5"]),
        ("à 15 h 30, v1.2.3", "fr", ["15 h 30", "v1.2.3"]),
        ("the 2nd MP3 (1 of 3), H1N1", "en", ["2nd", "MP3", "1", "3", "H1N1"]),
        ("在2020年3月5日", "zh", ["2020", "3", "5"]),
    ],
)
def test_a_number_is_found_as_it_is_written(text: str, language: str, expected: list[str]) -> None:
    assert [text[number.start : number.end] for number in numbers(text, language)] == expected


def test_decimals_of_amounts_are_adapted() -> None:
    assert adapted("12.5", ("en", "fr"), is_amount=True) == "12,5"


def test_separators_are_those_of_cldr() -> None:
    locales = pytest.importorskip("babel", reason="babel is not installed: pip install 'edgeformer[train]'")
    for language, (group, mark) in FORMATS.items():
        symbols = locales.Locale.parse(language, sep="-").number_symbols["latn"]
        assert (symbols["group"], symbols["decimal"]) == (group, mark), language


class Damaging(WordTranslator):
    """Drops, repeats and alters words with digits, as told."""

    def __init__(self, damage: Iterable[str], languages: tuple[str, str] = ("xx", "yy")) -> None:
        super().__init__()
        self.languages, self._damage, self.calls = languages, iter(damage), 0

    def translate(self, texts: Iterable[str | Source], options: object = None, **limits: object) -> list[Translation]:
        self.calls += 1
        return super().translate(texts)

    def translation(self, text: str) -> Translation:
        words = []
        for word in text.split():
            if any(map(str.isdecimal, word)):
                damage = next(self._damage, "")
                word = {"drop": "", "twice": f"{word} {word}", "": word}.get(damage, damage)
            words.append(word)
        target = " ".join(filter(None, words))
        return super().translation(target) if target else Translation(Source("", ()), (BLANK,))


BLANK = TextHypothesis("", (), (), 0.0, True)
NUMBERS = st.one_of(
    st.integers(0, 3000).map(str),
    st.sampled_from(["1,250.50", "3-2", "1.2.3", "12:45", "2020-12-31", "10%", "$5.25", "٣", "５", "MP3", "2nd", "+5"]),
)
WORDS = st.sampled_from(["the", "red", "dog", "car", "runs", "{name}", "%1", "https://a.b/9"])
DAMAGE = st.lists(st.sampled_from(["", "", "drop", "twice", "7", "12 of 13", "9.5x"]), max_size=12)


def digits(text: str) -> Counter[str]:
    """Groups of digits, outside URLs and placeholders."""
    groups = re.findall(r"\d+", re.sub(r"https://a\.b/9|%1|\{name\}", " ", text))
    return Counter("".join(str(int(digit)) for digit in group) for group in groups)


def without_zero(groups: Counter[str]) -> Counter[str]:
    return Counter(group[1:] if len(group) == 2 and group[0] == "0" else group for group in groups.elements())


@given(st.lists(st.one_of(NUMBERS, WORDS), min_size=1, max_size=9).map(" ".join), DAMAGE)
def test_the_digits_are_right_or_the_sentence_is_marked(text: str, damage: list[str]) -> None:
    translator: Any = Damaging(damage)
    (result,) = TextTranslator(translator, TextOptions(match_surface=False, max_repeats=0)).translate([text])
    if digits(text) and not any(sentence.wrong_numbers for sentence in result.sentences):  # or else nothing is judged
        assert without_zero(digits(result.text)) == without_zero(digits(text))


@examples(15, 100)
@given(st.lists(st.one_of(NUMBERS, WORDS), min_size=1, max_size=9).map(" ".join))
def test_numbers_that_are_right_are_left_alone(text: str) -> None:
    translator: Any = ReversingTranslator()
    checked, unchecked = (
        TextTranslator(translator, TextOptions(check_numbers=is_checked)).translate([text])[0]
        for is_checked in (True, False)
    )
    if without_zero(digits(unchecked.text)) == without_zero(digits(text)):
        assert checked.text == unchecked.text
        assert not any(sentence.wrong_numbers for sentence in checked.sentences)


@examples(15, 100)
@given(st.text(st.characters(exclude_categories=["Nd", "Cs"]), max_size=80), DAMAGE)
def test_a_text_without_digits_is_unchanged(text: str, damage: list[str]) -> None:
    source = SimpleNamespace(translate=lambda sentence: f"{sentence} {' '.join(damage)}")
    results = []
    for is_checked in (True, False):
        translator: Any = WordTranslator()
        plan = TextTranslator(translator, TextOptions(check_numbers=is_checked)).split(text)
        translations = [translator.translation(source.translate(sentence.text)) for sentence in plan.sentences]
        results.append(plan.join(translations, translator.translate))
    assert results[0].text == results[1].text
    assert not any(sentence.wrong_numbers for sentence in results[0].sentences)


@pytest.mark.parametrize(
    ("text", "damage", "expected", "calls"),
    [
        ("the dog runs $1,250.50 &amp; more", ["$999"], "le chien court $ 1\u202f250,50 &amp; more", 1),
        ("the <b>dog</b> runs 57 times.", ["drop"], "le <b>chien</b> court 57 times.", 2),
        ("the dog runs $12.5 now.", ["drop"], "le chien court $12,5 now.", 2),
        ("the 12 dogs run 57 times", ["drop", "drop", "9", "9"], "le 12 dogs run 57 times", 2),
    ],
)
def test_a_number_takes_the_place_of_what_it_became_or_is_put_between_the_words_around_it(
    text: str, damage: list[str], expected: str, calls: int
) -> None:
    """Only the latter takes another translation."""
    translator: Any = Damaging(damage, ("en", "fr"))
    assert TextTranslator(translator).translate([text], format="html")[0].text == expected
    assert translator.calls == calls


def test_what_is_wrong_even_so_is_marked() -> None:
    translator: Any = Damaging(["drop"] * 9, ("en", "fr"))
    translator.translate = lambda texts, *_, **__: [WordTranslator.translation(translator, "the 9 dog")] * len(texts)
    (result,) = TextTranslator(translator).translate(["the dogs run 57 times and 58 times"])
    assert result.sentences[0].wrong_numbers == ("9",)
