"""Altered copies of training pairs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.data.text import Pair
from edgeformer_text.protected import protected_spans
from models.make import form
from models.make.copies import CopyAmounts, augmented
from models.make.joined import PairJoiner
from models.make.names import Name, NameReplacer, entries
from models.make.numbers import NumberReplacer
from models.make.placeholders import PlaceholderInserter
from tests.amounts import examples

EN_FR = ("en", "fr")
PAIRS = [
    ("Tom lives in London.", "Tom vit à Londres."),
    ("Mary has 12 cats.", "Marie a 12 chats."),
    ("The train leaves at 7:30.", "Le train part à 7 h 30."),
    ("It costs 1,250.50 dollars.", "Ça coûte 1\u202f250,50 dollars."),
    ("Where is {name}?", "Où est {name} ?"),
    ("I was tired.", "J'étais fatigué."),
    ("He was late.", "Il était en retard."),
    ("Open the file", "Ouvrir le fichier"),
]
EVERYTHING = CopyAmounts(**{**{field.name: 1.5 for field in fields(CopyAmounts)}, "short": 0.0})
NAMES, NUMBERS = NameReplacer(EN_FR), NumberReplacer(EN_FR)
KINDS: dict[str, Callable[[Pair, Random], Pair | None]] = {
    "lowercase": form.lowercase,
    "uppercase": form.uppercase,
    "titlecase": form.titlecase,
    "unpunctuated": form.unpunctuated,
    "quotes": form.quotes,
    "numbers": NUMBERS.replaced,
    "names": NAMES.replaced,
}


def protected(text: str) -> list[str]:
    return [text[begin:end] for begin, end in protected_spans(text)]


def values(pair: Pair) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    source, target = NUMBERS.of_both(pair)
    return sorted(number.value for number in source), sorted(number.value for number in target)


def test_pairs_come_first_and_their_copies_depend_on_each_alone() -> None:
    alone = replace(EVERYTHING, joined=0)
    text = augmented(PAIRS, alone, EN_FR)
    assert text[: len(PAIRS)] == PAIRS
    assert len(set(text)) == len(text) > 5 * len(PAIRS)
    assert set(text) == {copy for pair in PAIRS for copy in augmented([pair], alone, EN_FR)}
    assert set(augmented(PAIRS, alone, EN_FR, seed=2)) != set(text)
    assert augmented(PAIRS * 2, CopyAmounts(), EN_FR) == PAIRS * 2


def test_short_sentences_and_their_copies_are_repeated() -> None:
    pairs = [("Come in!", "Entrez\u202f!"), ("Is it?", "Est-ce que c'est ça ?")]
    text = augmented(pairs, CopyAmounts(unpunctuated=1, short=2), EN_FR)
    assert [text.count(pair) for pair in (*pairs, ("Come in", "Entrez"))] == [3, 1, 3]


@pytest.mark.parametrize(("mean", "low", "high"), [(0.25, 160, 320), (2, 1800, 2000)])
def test_mean_number_of_copies(mean: float, low: int, high: int) -> None:
    pairs = [(f"There are 50000 words on page p{page}.", f"Il y a 50000 mots en p{page}.") for page in range(1000)]
    assert low <= len(augmented(pairs, CopyAmounts(numbers=mean), EN_FR)) - len(pairs) <= high


WORDS = st.sampled_from(["Hello", "élan", "it's", "{name}", "%s", "https://a.org/B", "M.x@y.fr", "😀", "“A”"])


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(WORDS))
@examples(10, 100)
def test_placeholders_and_addresses_keep_their_form(kind: str, words: list[str]) -> None:
    text = " ".join(["Well", *words]) + "."
    copy = KINDS[kind]((text, text), Random(1)) or (text, text)
    assert protected(copy[0]) == protected(copy[1]) == protected(text)


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [
        ("lowercase", ("Hello, Tom!", "Bonjour, Tom !"), ("hello, tom!", "bonjour, tom !")),
        ("uppercase", ("It's late.", "Il est déjà tard."), ("IT'S LATE.", "IL EST DÉJÀ TARD.")),
        ("titlecase", ("It's very late.", "Il est tard."), ("It's Very Late.", "Il est tard.")),
        ("unpunctuated", ("Well...", "Bon…"), ("Well", "Bon")),
        ("quotes", ('I\'m "here".', "Je suis « là »."), ("I’m “here”.", "Je suis « là ».")),
        ("quotes", ("I’m here.", "J’y suis."), ("I'm here.", "J’y suis.")),
        # What is not certain stays.
        ("lowercase", ("open", "Ouvrir"), None),
        ("unpunctuated", ("At 5 p.m.", "À 17 heures."), None),
        ("unpunctuated", ("Pens, paper, etc.", "Des stylos, du papier, etc."), None),
        ("unpunctuated", ("Open", "Ouvrir."), None),
        ("numbers", ("I am 18.", "J'ai dix-huit ans."), None),
        ("numbers", ("5 or 5", "5 ou 5"), None),
        ("numbers", ("At 7:30 p.m.", "À 7 h 30 du soir"), None),
        ("numbers", ("1 day", "1 jour"), None),
        ("numbers", ("Press F11, see {0}.", "Appuyez sur F11, voir {0}."), None),
        ("names", ("Tom likes Tom.", "Tom aime Tom."), None),
        ("names", ("Tom left.", "Il est parti."), None),
        ("names", ("Marion left.", "Marion est partie."), None),
    ],
)
def test_what_is_certain_changes(kind: str, pair: Pair, expected: Pair | None) -> None:
    assert KINDS[kind](pair, Random(1)) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It is 7:30 p.m. now.", "Il est 19:30 maintenant."),
        ("At 9:05 and 10:15.", "À 9 h 05 et 10h15."),
        ("Call 555-1234 or +33 6 12 34 56 78.", "Appelez le 555-1234 ou le +33 6 12 34 56 78."),
        ("On May 20th, 1999.", "Le 20 mai 1999."),
        ("Version 7.4.2 costs $30.", "La version 7.4.2 coûte 30 $."),
        ("50% of 1,000,000", "50\u00a0% de 1 000 000"),
        ("It costs 1,250.50 dollars.", "Ça coûte 1\u202f250,50 dollars."),
    ],
)
def test_numbers_of_every_form_correspond_in_both_languages(source: str, target: str) -> None:
    copies = [NUMBERS.replaced((source, target), Random(seed)) for seed in range(20)]
    assert len(set(copies)) > 5
    for copy in copies:
        assert copy is not None
        new_source, new_target = values(copy)
        assert new_source == new_target
        assert len(new_source) == len(values((source, target))[0])


def test_english_ordinals_get_their_endings() -> None:
    found = {NUMBERS.replaced(("the 25th", "le 25e"), Random(seed)) for seed in range(60)}
    endings = dict(re.findall(r"the (\d+)(\w+)", str(found)))
    assert (endings["22"], endings["23"], endings["21"], endings["11"], endings["14"]) == ("nd", "rd", "st", "th", "th")


def test_names_are_replaced_by_others_of_their_kind_and_cities_by_their_names() -> None:
    for seed in range(60):
        copy = NAMES.replaced(("Tom and Mary met in London.", "Tom et Marie se sont vus à Londres."), Random(seed))
        assert copy is not None
        first, _, second, *_, city = copy[0].rstrip(".").split(" ", 5)
        assert copy[1].startswith(f"{first} et {second} se sont vus à ")
        assert first[:2] in {name[:2] for name in entries("men")}
        assert second[:2] in {name[:2] for name in entries("women")}
        assert city[0] not in "AEIOU", "French depends on vowels"
    found = {name for name, _ in NameReplacer(("en", "de")).find(("from Vienna to Lisbon", "von Wien nach Lissabon"))}
    assert found == {Name("Vienna", "Wien"), Name("Lisbon", "Lissabon")}


def test_joined_pairs_and_names_that_keep_their_capital() -> None:
    context = [("Then he and Tom ran, I think.", "Alors il et Tom ont couru, je crois que j' y étais.")] * 30
    joined = PairJoiner(
        [("Tom was late.", "Tom était en retard."), ("He was late.", "Il était en retard."), *context], EN_FR
    )
    results = {joined.joined(("I was tired.", "J'étais fatigué."), Random(seed)) for seed in range(300)}
    assert ("I was tired. He was late.", "J'étais fatigué. Il était en retard.") in results
    assert ("I was tired and he was late.", "J'étais fatigué et il était en retard.") in results
    assert ("I was tired and Tom was late.", "J'étais fatigué et Tom était en retard.") in results
    assert joined.joined(("Open the file", "Ouvrir le fichier"), Random(1)) is None


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_inserted_is_on_both_sides(pair: Pair) -> None:
    for seed in range(20):
        source, target = PlaceholderInserter(NAMES, NUMBERS).inserted(pair, Random(seed))
        assert set(protected(source)) == set(protected(target)) != set()
