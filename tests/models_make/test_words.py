"""The corpus of words and short strings."""

from __future__ import annotations

from functools import cache

import pytest

from models.make.words import english_number, french_number, generate_words


@cache
def corpus(seed: int = 1) -> list[tuple[str, str]]:
    return generate_words(seed=seed)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Hello", "Bonjour"),
        ("Monday", "lundi"),
        ("March", "mars"),
        ("in August", "en août"),
        ("Germany", "Allemagne"),
        ("Japanese", "japonais"),
        ("US Dollar", "dollar des États-Unis"),
        ("2 kilograms", "2\u00a0kilogrammes"),
        ("Vienna", "Vienne"),
        ("twenty-one", "vingt et un"),
    ],
)
def test_known_words(source: str, target: str) -> None:
    assert (source, target) in corpus()


def test_words_are_short_and_distinct() -> None:
    pairs = corpus()
    assert len(set(pairs)) == len(pairs) > 8000
    for source, target in pairs:
        assert source == source.strip() != ""
        assert target == target.strip() != ""
        assert len(source) <= 80
        assert not any(
            mark in target for mark in ("length-", "volume-", "mass-", "speed-")
        )  # a unit CLDR does not know
    assert set(pairs) != set(corpus(2))


@pytest.mark.parametrize(
    ("number", "english", "french"),
    [
        (0, "zero", "zéro"),
        (16, "sixteen", "seize"),
        (21, "twenty-one", "vingt et un"),
        (60, "sixty", "soixante"),
        (71, "seventy-one", "soixante et onze"),
        (77, "seventy-seven", "soixante-dix-sept"),
        (80, "eighty", "quatre-vingts"),
        (81, "eighty-one", "quatre-vingt-un"),
        (91, "ninety-one", "quatre-vingt-onze"),
        (100, "one hundred", "cent"),
        (101, "one hundred one", "cent un"),
        (200, "two hundred", "deux cents"),
        (203, "two hundred three", "deux cent trois"),
        (280, "two hundred eighty", "deux cent quatre-vingts"),
        (1000, "one thousand", "mille"),
        (2000, "two thousand", "deux mille"),
        (80_000, "eighty thousand", "quatre-vingt mille"),
        (200_000, "two hundred thousand", "deux cent mille"),
        (
            999_999,
            "nine hundred ninety-nine thousand nine hundred ninety-nine",
            "neuf cent quatre-vingt-dix-neuf mille neuf cent quatre-vingt-dix-neuf",
        ),
    ],
)
def test_numbers_in_words(number: int, english: str, french: str) -> None:
    assert english_number(number) == english
    assert french_number(number) == french


def test_every_number_has_its_own_words() -> None:
    numbers = range(0, 20_000, 7)
    assert len({english_number(number) for number in numbers}) == len(numbers)
    assert len({french_number(number) for number in numbers}) == len(numbers)
