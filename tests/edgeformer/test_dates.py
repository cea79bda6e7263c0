"""The embedded corpus."""

from __future__ import annotations

import hashlib
from functools import cache
from random import Random

import pytest

from edgeformer.data.dates import generate_dates
from edgeformer.errors import DataError
from tests.commands import python


@cache
def corpus(*, size: int = 12_000, seed: int = 1) -> list[tuple[str, str]]:
    return generate_dates(size=size, seed=seed)


def test_one_target_for_each_source() -> None:
    pairs = corpus()
    assert len({source for source, _ in pairs}) == len(pairs) == 12_000
    known = dict(pairs)
    again = dict(corpus(size=3_000, seed=2))
    shared = known.keys() & again.keys()
    assert len(shared) > 20
    assert {source for source in shared if known[source] != again[source]} == set()


def test_sentences_are_short_and_whole() -> None:
    for source, target in corpus():
        assert 0 < len(source) <= 40
        assert 0 < len(target) <= 60
        assert source == source.strip()
        assert target == target.strip()
        assert sum(char.isdigit() for char in source) <= 18


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("February 19, 2064", "19 février 2064"),
        ("Saturday, November 13, 2032", "samedi 13 novembre 2032"),
        ("9/16/1998", "16/09/1998"),
        ("12:28\u202fAM", "00:28"),
        ("12:54\u202fPM", "12:54"),
        ("7:58:53\u202fPM", "19:58:53"),
        ("Sun, Apr 16", "dim. 16 avr."),
        ("Q2 2069", "T2 2069"),
        ("805,992", "805\u202f992"),
        ("-0.64", "-0,64"),
        ("4.8 million", "4,8 millions"),
        ("32.91%", "32,91\u00a0%"),
        ("€88.00", "88,00\u00a0€"),
        ("0.04 US dollars", "0,04 dollar des États-Unis"),
        ("61 kilometers per hour", "61\u00a0kilomètres par heure"),
        ("2,496 sec", "2\u202f496\u202fs"),
        ("in 144 days", "dans 144 jours"),
        ("86 hours ago", "il y a 86 heures"),
    ],
)
def test_known_translations(source: str, target: str) -> None:
    assert dict(corpus())[source] == target


def test_years_have_four_digits() -> None:
    assert not [source for source, _ in corpus() if source.count("/") == 2 and len(source.rpartition("/")[2]) != 4]


@pytest.mark.slow
def test_independent_of_hash_seed() -> None:
    code = (
        "import hashlib; from edgeformer.data.dates import generate_dates;"
        "print(hashlib.sha256(repr(generate_dates(size=2000, seed=7)).encode()).hexdigest())"
    )
    expected = hashlib.sha256(repr(generate_dates(size=2000, seed=7)).encode()).hexdigest()
    assert python(code, PYTHONHASHSEED="123").stdout.strip() == expected


def test_too_large_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeformer.data import dates

    monkeypatch.setattr(dates, "MAKERS", {lambda random: (str(random.randrange(10)), "x"): 1})
    with pytest.raises(DataError, match="has fewer than 50 distinct pairs"):
        generate_dates(size=50)


def test_ambiguous_sources_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeformer.data import dates

    def maker(random: Random) -> tuple[str, str]:
        number = random.randrange(200)
        return ("ambiguous", random.choice("xy")) if number < 100 else (str(number), str(number))

    monkeypatch.setattr(dates, "MAKERS", {maker: 1})
    pairs = dict(generate_dates(size=60))
    assert len(pairs) == 60
    assert "ambiguous" not in pairs
