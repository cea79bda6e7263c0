"""Altered copies of training pairs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.data.text import Pair
from edgeformer_runtime.text.protected import protected_spans
from models.make import form
from models.make.copies import CopyAmounts, augmented
from models.make.joined import Joined
from models.make.names import Name, Names, entries
from models.make.numbers import Numbers
from models.make.placeholders import Placeholders

EN_FR = ("en", "fr")
PAIRS = [
    ("Tom lives in London.", "Tom vit à Londres."),
    ("Mary has 12 cats.", "Marie a 12 chats."),
    ("The train leaves at 7:30.", "Le train part à 7 h 30."),
    ("It costs 1,250.50 dollars.", "Ça coûte 1\u202f250,50 dollars."),
    ("He said: “I'm here.”", "Il a dit : « Je suis là. »"),
    ("Where is {name}?", "Où est {name} ?"),
    ("I was tired.", "J'étais fatigué."),
    ("He was late.", "Il était en retard."),
    ("Open the file", "Ouvrir le fichier"),
]
EVERYTHING = CopyAmounts(**{**{field.name: 1.5 for field in fields(CopyAmounts)}, "short": 0.0})
WORDS = ["Hello", "élan", "it's", "{name}", "%s", "https://a.org/B", "M.x@y.fr", "😀", "“A”"]
KINDS: dict[str, Callable[[Pair, Random], Pair | None]] = {
    "lowercase": form.lowercase,
    "uppercase": form.uppercase,
    "titlecase": form.titlecase,
    "unpunctuated": form.unpunctuated,
    "quotes": form.quotes,
}


@cache
def numbers(*languages: str) -> Numbers:
    return Numbers((languages[0], languages[1]))


@cache
def names() -> Names:
    return Names(EN_FR)


def protected(text: str) -> list[str]:
    return [text[begin:end] for begin, end in protected_spans(text)]


def values(pair: Pair) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    source, target = numbers(*EN_FR).of_both(pair)
    return sorted(number.value for number in source), sorted(number.value for number in target)


def test_pairs_come_first_and_no_copy_repeats_one() -> None:
    text = augmented(PAIRS, EVERYTHING, EN_FR, seed=1)
    assert text[: len(PAIRS)] == PAIRS
    assert len(set(text)) == len(text) > 5 * len(PAIRS)
    assert all(source.strip() and target.strip() for source, target in text)


def test_repeated_pairs_stay() -> None:
    assert augmented(PAIRS[:1] * 3, CopyAmounts(uppercase=1), EN_FR, seed=1) == [
        *PAIRS[:1] * 3,
        ("TOM LIVES IN LONDON.", "TOM VIT À LONDRES."),
    ]


def test_short_sentences_and_their_copies_are_repeated() -> None:
    pairs = [
        ("Come in!", "Entrez\u202f!"),
        ("Come in, the door is open.", "Entrez, c'est ouvert."),
        ("Is it?", "Est-ce que c'est ça ?"),
    ]
    text = augmented(pairs, CopyAmounts(unpunctuated=1, short=2), EN_FR, seed=1)
    assert [text.count(pair) for pair in pairs] == [3, 1, 1]
    assert text.count(("Come in", "Entrez")) == 3


def test_the_copies_of_a_pair_depend_on_it_alone() -> None:
    alone = replace(EVERYTHING, joined=0)
    together = augmented(PAIRS, alone, EN_FR, seed=1)
    each = {copy for pair in PAIRS for copy in augmented([pair], alone, EN_FR, seed=1)}
    assert set(together) == each
    assert set(augmented(PAIRS[::-1], alone, EN_FR, seed=1)) == each
    assert set(augmented(PAIRS, alone, EN_FR, seed=2)) != each


@pytest.mark.parametrize(("mean", "low", "high"), [(0.25, 180, 320), (2, 2000, 2000)])
def test_mean_number_of_copies(mean: float, low: int, high: int) -> None:
    pairs = [(f"There are 50000 words on page p{page}.", f"Il y a 50000 mots en p{page}.") for page in range(1000)]
    text = augmented(pairs, CopyAmounts(numbers=mean), EN_FR, seed=1)
    assert low * 0.9 <= len(text) - len(pairs) <= high


@pytest.mark.parametrize("kind", KINDS)
@given(words=st.lists(st.sampled_from(WORDS)))
def test_placeholders_and_addresses_keep_their_form(kind: str, words: list[str]) -> None:
    text = " ".join(["Well", *words]) + "."
    copy = KINDS[kind]((text, text), Random(1))
    if copy is not None:
        assert protected(copy[0]) == protected(text)
        assert protected(copy[1]) == protected(text)


@pytest.mark.parametrize(
    ("kind", "pair", "expected"),
    [
        ("lowercase", ("Hello, Tom!", "Bonjour, Tom !"), ("hello, tom!", "bonjour, tom !")),
        ("uppercase", ("It's late.", "Il est déjà tard."), ("IT'S LATE.", "IL EST DÉJÀ TARD.")),
        ("titlecase", ("It's very late.", "Il est tard."), ("It's Very Late.", "Il est tard.")),
        ("unpunctuated", ("Who is it?", "Qui est-ce\u202f?"), ("Who is it", "Qui est-ce")),
        ("unpunctuated", ("Well...", "Bon…"), ("Well", "Bon")),
        ("unpunctuated", ("At 5 p.m.", "À 17 heures."), None),
        ("unpunctuated", ("Pens, paper, etc.", "Des stylos, du papier, etc."), None),
        ("unpunctuated", ("Open", "Ouvrir."), None),
        ("quotes", ('I\'m "here".', "Je suis « là »."), ("I’m “here”.", "Je suis « là ».")),
        ("quotes", ("I’m here.", "J’y suis."), ("I'm here.", "J’y suis.")),
        ("lowercase", ("open", "Ouvrir"), None),
    ],
)
def test_form(kind: str, pair: Pair, expected: Pair | None) -> None:
    assert KINDS[kind](pair, Random(1)) == expected


@given(
    value=st.decimals(min_value=2, max_value=9_999_999, places=2),
    whole=st.booleans(),
    seed=st.integers(0, 100),
    unit=st.sampled_from([("dollars", "dollars"), ("lines", "lignes"), ("kilograms", "kilogrammes")]),
)
def test_numbers_correspond_in_the_formats_of_both_languages(
    value: float, whole: bool, seed: int, unit: tuple[str, str]
) -> None:
    english = f"{int(value):,}" if whole else f"{value:,}"
    french = english.translate(str.maketrans(",.", "\u202f,"))
    pair = f"I see {english} {unit[0]}.", f"Je vois {french} {unit[1]}."
    copy = numbers(*EN_FR).replaced(pair, Random(seed))
    assert copy is not None
    source, target = values(copy)
    assert source == target
    assert len(source) == 1
    assert int(source[0][0]) > 1
    assert copy[0].startswith("I see ")
    assert copy[0].endswith(f" {unit[0]}.")
    assert copy[1].endswith(f" {unit[1]}.")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("It is 7:30 p.m. now.", "Il est 19:30 maintenant."),
        ("At 9:05 and 10:15.", "À 9 h 05 et 10h15."),
        ("Call 555-1234 or +33 6 12 34 56 78.", "Appelez le 555-1234 ou le +33 6 12 34 56 78."),
        ("On May 20th, 1999.", "Le 20 mai 1999."),
        ("The 13th floor", "Le 13e étage"),
        ("It weighs 5kg and 16GB.", "Il pèse 5kg et 16GB."),
        ("Version 7.4.2 costs $30.", "La version 7.4.2 coûte 30 $."),
        ("50% of 1,000,000", "50\u00a0% de 1 000 000"),
    ],
)
def test_numbers_of_every_form_are_replaced(source: str, target: str) -> None:
    copies = [numbers(*EN_FR).replaced((source, target), Random(seed)) for seed in range(20)]
    assert len(set(copies)) > 5
    for copy in copies:
        assert copy is not None
        new_source, new_target = values(copy)
        assert new_source == new_target
        assert len(new_source) == len(values((source, target))[0])


def test_english_ordinals_get_their_endings() -> None:
    found = {numbers(*EN_FR).replaced(("the 25th", "le 25e"), Random(seed)) for seed in range(60)}
    endings = dict(re.findall(r"the (\d+)(\w+)", str(found)))
    assert (endings["22"], endings["23"], endings["21"], endings["11"], endings["14"]) == ("nd", "rd", "st", "th", "th")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("I am 18.", "J'ai dix-huit ans."),
        ("5 or 5", "5 ou 5"),
        ("From 5 to 8", "De 5 à 9"),
        ("At 7:30 p.m.", "À 7 h 30 du soir"),
        ("1 day", "1 jour"),
        ("Press F11.", "Appuyez sur F11."),
        ("Pick {0}.", "Choisissez {0}."),
        ("See https://a.org/12.", "Voir https://a.org/12."),
        ("In the 1920s", "Dans les années 1920"),
    ],
)
def test_numbers_that_are_not_certain_stay(source: str, target: str) -> None:
    assert numbers(*EN_FR).replaced((source, target), Random(1)) is None


@pytest.mark.parametrize(
    ("languages", "pair"),
    [
        (("en", "de"), ("It has 1,250.50 points.", "Es hat 1.250,50 Punkte.")),
        (("de", "en"), ("Es hat 1.250,50 Punkte.", "It has 1,250.50 points.")),
        (("en-US", "pt-BR"), ("It has 1,250.50 points.", "Tem 1.250,50 pontos.")),
    ],
)
def test_number_formats_are_those_of_the_languages(languages: tuple[str, str], pair: Pair) -> None:
    copy = numbers(*languages).replaced(pair, Random(1))
    assert copy is not None
    assert copy[0].translate(str.maketrans(",.", ".,")).split()[-2] == copy[1].split()[-2]


def test_names_are_replaced_by_others_of_their_kind() -> None:
    made_up = 0
    for seed in range(60):
        copy = names().replaced(("Tom and Mary met in London.", "Tom et Marie se sont vus à Londres."), Random(seed))
        assert copy is not None
        first, _, second, *_, city = copy[0].rstrip(".").split(" ", 5)
        assert copy[1].startswith(f"{first} et {second} se sont vus à ")
        assert first[:2] in {name[:2] for name in entries("men")}
        assert second[:2] in {name[:2] for name in entries("women")}
        assert city[0] not in "AEIOU"
        made_up += first not in entries("men")
    assert 5 < made_up < 40


@pytest.mark.parametrize("name", ["Anna", "Tom"])
def test_names_that_begin_with_vowels_are_replaced_by_such(name: str) -> None:
    for seed in range(50):
        copy = names().replaced((f"I see {name}.", f"Je vois {name}."), Random(seed))
        assert copy is not None
        assert (copy[0].split()[-1][0] in "AEIOUÉ") == (name[0] in "AEIOUÉ")


@pytest.mark.parametrize(
    "pair",
    [
        ("Tom likes Tom.", "Tom aime Tom."),
        ("Tom left.", "Il est parti."),
        ("Marion left.", "Marion est partie."),
        ("She is in Paris-Nord.", "Elle est à Paris-Nord."),
    ],
)
def test_names_that_are_not_certain_stay(pair: Pair) -> None:
    assert names().replaced(pair, Random(1)) is None


def test_cities_are_those_of_the_languages() -> None:
    found = {name for name, _ in Names(("en", "de")).find(("from Vienna to Lisbon", "von Wien nach Lissabon"))}
    assert found == {Name("Vienna", "Wien"), Name("Lisbon", "Lissabon")}


def test_joined_pairs() -> None:
    pairs = [
        *PAIRS[6:8],
        *[("Then he and she ran, I think.", "Alors il et elle ont couru, je crois que j' y étais.")] * 30,
    ]
    joined = Joined(pairs, EN_FR)
    results = {joined.joined(pairs[0], Random(seed)) for seed in range(300)}
    assert ("I was tired. He was late.", "J'étais fatigué. Il était en retard.") in results
    assert ("I was tired and he was late.", "J'étais fatigué et il était en retard.") in results
    assert joined.joined(("Open the file", "Ouvrir le fichier"), Random(1)) is None


def test_a_name_keeps_its_capital_in_a_clause() -> None:
    pairs = [("Tom was late.", "Tom était en retard.")]
    context = [("I saw Tom and Tom saw us.", "J'ai vu Tom et Tom nous a vus.")] * 20
    joined = Joined([*pairs, *context], EN_FR)
    results = {joined.joined(("We ate.", "On a mangé."), Random(seed)) for seed in range(200)}
    assert ("We ate and Tom was late.", "On a mangé et Tom était en retard.") in results


@given(seed=st.integers(0, 10_000), index=st.integers(0, len(PAIRS) - 1))
def test_what_is_inserted_is_on_both_sides(seed: int, index: int) -> None:
    source, target = Placeholders(names(), numbers(*EN_FR)).inserted(PAIRS[index], Random(seed))
    new = set(protected(source))
    assert new
    assert new == set(protected(target))
