"""Words and short strings."""

from __future__ import annotations

import pytest

from models.make.words import english_number, french_number, generate_words


def test_words_are_short_distinct_and_right() -> None:
    pairs = generate_words(seed=1)
    assert len(set(pairs)) == len(pairs) > 8000
    assert all(0 < len(side) <= 100 and side == side.strip() for pair in pairs for side in pair)
    assert not [target for _, target in pairs if target.startswith(("length-", "volume-", "mass-", "speed-"))]
    known = {"Monday": "lundi", "in August": "en août", "Germany": "Allemagne", "2 kilograms": "2\u00a0kilogrammes"}
    assert known.items() | {("Vienna", "Vienne"), ("Hello", "Bonjour")} <= set(pairs)


@pytest.mark.parametrize(
    ("number", "english", "french"),
    [
        (0, "zero", "zéro"),
        (21, "twenty-one", "vingt et un"),
        (71, "seventy-one", "soixante et onze"),
        (80, "eighty", "quatre-vingts"),
        (81, "eighty-one", "quatre-vingt-un"),
        (91, "ninety-one", "quatre-vingt-onze"),
        (101, "one hundred one", "cent un"),
        (200, "two hundred", "deux cents"),
        (203, "two hundred three", "deux cent trois"),
        (1000, "one thousand", "mille"),
        (80_000, "eighty thousand", "quatre-vingt mille"),
        (200_000, "two hundred thousand", "deux cent mille"),
    ],
)
def test_numbers_in_words(number: int, english: str, french: str) -> None:
    assert english_number(number) == english
    assert french_number(number) == french


def test_every_number_has_its_own_words() -> None:
    numbers = range(0, 20_000, 7)
    assert len({english_number(number) for number in numbers}) == len(numbers)
    assert len({french_number(number) for number in numbers}) == len(numbers)
