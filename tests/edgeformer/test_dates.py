"""The embedded corpus."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from random import Random

import pytest

from edgeformer.data.dates import generate_dates
from edgeformer.errors import DataError
from tests.edgeformer.conftest import generate_once


def corpus(**settings: int) -> list[tuple[str, str]]:
    return generate_once(**{"seed": 1, **settings})


def test_one_target_for_each_source() -> None:
    pairs = corpus()
    assert len({source for source, _ in pairs}) == len(pairs) == 60_000
    known = dict(pairs)
    again = dict(corpus(size=10_000, seed=2))
    shared = known.keys() & again.keys()
    assert len(shared) > 500
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
        ("March 25, 1961", "25 mars 1961"),
        ("Sunday, February 15, 1931", "dimanche 15 février 1931"),
        ("7/16/2044", "16/07/2044"),
        ("12:07\u202fAM", "00:07"),
        ("12:41\u202fPM", "12:41"),
        ("7:19:40\u202fPM", "19:19:40"),
        ("Mon, Aug 31", "lun. 31 août"),
        ("Q4 2050", "T4 2050"),
        ("850,377", "850\u202f377"),
        ("-0.95", "-0,95"),
        ("6.3 million", "6,3 millions"),
        ("32.97%", "32,97\u00a0%"),
        ("€15.00", "15,00\u00a0€"),
        ("0.04 US dollars", "0,04 dollar des États-Unis"),
        ("93 kilometers per hour", "93\u00a0kilomètres par heure"),
        ("2 sec", "2\u202fs"),
        ("in 144 days", "dans 144 jours"),
        ("86 hours ago", "il y a 86 heures"),
    ],
)
def test_known_translations(source: str, target: str) -> None:
    assert dict(corpus())[source] == target


def test_years_have_four_digits() -> None:
    assert not [source for source, _ in corpus() if source.count("/") == 2 and len(source.rpartition("/")[2]) != 4]


def test_seeds_differ() -> None:
    assert set(corpus(size=100)).isdisjoint(corpus(size=100, seed=2))


def test_independent_of_hash_seed() -> None:
    code = (
        "import hashlib; from edgeformer.data.dates import generate_dates;"
        "print(hashlib.sha256(repr(generate_dates(size=2000, seed=7)).encode()).hexdigest())"
    )
    expected = hashlib.sha256(repr(generate_dates(size=2000, seed=7)).encode()).hexdigest()
    for hash_seed in ("0", "123"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        assert run.stdout.strip() == expected


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
