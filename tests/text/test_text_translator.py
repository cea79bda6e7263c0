"""Translating whole texts."""

from __future__ import annotations

import html
import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.translator import Translator
from edgeformer_text.options import Format, TextOptions
from edgeformer_text.surface import repaired, surface_change
from edgeformer_text.text_translator import TextTranslator
from tests.bundles import copy_of, edit_manifest
from tests.text.attended import SayingTranslator, join, read_of
from tests.text.attended import text_translator as word_translator
from tests.web.rules import RULES

TEXT = "The old dog runs 350 times near the sea. The green river sings.\n\n- the machine\n- 42\n"


def test_a_text_is_its_sentences(translator: Translator) -> None:
    text_translator = TextTranslator(translator, TextOptions(match_surface=False, check_numbers=False))
    first, second, third = (
        translation.text
        for translation in translator.translate(
            ["The old dog runs 350 times near the sea.", "The green river sings.", "the machine"],
            text_translator.decoding(),
        )
    )
    (result,) = text_translator.translate([TEXT])
    assert result.text == f"{first} {second}\n\n- {third}\n- 42\n"
    assert [TEXT[slice(*sentence.source_span)] for sentence in result.sentences][2:] == ["the machine", "42"]
    assert [result.text[slice(*sentence.target_span)] for sentence in result.sentences] == [first, second, third, "42"]
    assert result.sentences[3].translation is None
    assert result.sentences[3].confidence is None


def test_the_halves_give_the_same_and_texts_are_independent(translator: Translator) -> None:
    text_translator = TextTranslator(translator)
    texts = [TEXT, "dog", "", "The machine turns. 12", "HELLO OLD DOG AND SEA"]
    together = [result.text for result in text_translator.translate(texts, beam_size=2)]
    decoding = text_translator.decoding(beam_size=2)
    for text, expected in zip(texts, together, strict=True):
        plan = text_translator.split(text)
        translate = partial(translator.translate, options=decoding)
        assert plan.join(translate(plan.sentences), translate).text == expected
        assert text_translator.translate([text], beam_size=2)[0].text == expected


def test_confidence_is_the_geometric_mean_of_probabilities(translator: Translator) -> None:
    (result,) = TextTranslator(translator).translate(["The old dog runs."])
    (sentence,) = result.sentences
    assert sentence.translation is not None
    scores = sentence.translation.best.token_scores
    assert scores is not None
    assert sentence.confidence == pytest.approx(math.exp(sum(scores) / len(scores)))
    (plain,) = TextTranslator(translator).translate(["The old dog runs."], options=translator.options(length_penalty=2))
    assert plain.sentences[0].confidence is None, "a score that is divided by another length is no mean"


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("text", "the dog {name} runs 3 times. A red dog!"),
        ("text", "You have {n, plural, one {# dog} other {# red dogs}} in the car."),
        ("text", "the dog: {n, select, a {the dog} other {the car}}"),
        (
            "html",
            "<p title='dog'>the <b>red dog</b> &amp; the <a href='dog'>car</a> &lt;dog&gt; run<br>s.</p>dog",
        ),
    ],
)
def test_every_word_is_where_its_spans_say(format: Format, text: str) -> None:
    (result,) = word_translator(word_details=True).translate([text], format=format)
    for sentence in result.sentences:
        words = [word.target_span for word in sentence.words]
        written = result.text[slice(*sentence.target_span)]
        source = text[slice(*sentence.source_span)]
        assert words
        assert all(before[1] <= after[0] for before, after in pairwise(words))
        for word in sentence.words:
            shown = written[slice(*word.target_span)]
            assert (html.unescape(shown) if format == "html" else shown) == word.text
            if word.source_span is not None and word.text == "chien":
                assert source[slice(*word.source_span)] == "dog"


class TestPeriod:
    """Sentences without final punctuation, for models that need it."""

    @pytest.fixture
    def needy(self, small_bundle: Path, tmp_path: Path, device: str) -> Translator:
        bundle = edit_manifest(copy_of(small_bundle, tmp_path), lambda tree: tree.update(traits={"needs_period": True}))
        return Translator.open(bundle, device=device, threads=1)

    def test_the_model_reads_a_period_where_none_is(self, needy: Translator, translator: Translator) -> None:
        text = "the dog runs\nThe dog runs!\nthe  dogs:\nthe {name}\nthe (old) dog (2)\ndog 5"
        plan = TextTranslator(needy).split(text)
        read = ["the dog runs.", "The dog runs!", "the  dogs:", "the {name}", "the (old) dog (2).", "dog 5."]
        assert read_of(plan) == read
        for other in (TextTranslator(needy, TextOptions(add_period=False)), TextTranslator(translator)):
            assert read_of(other.split(text)) == text.split("\n")
        assert read_of(TextTranslator(needy).split("<b>the</b> dog", format="html")) == ["the dog."]

    @pytest.mark.parametrize("match_surface", [True, False])
    def test_the_translation_loses_its_final_punctuation(self, needy: Translator, *, match_surface: bool) -> None:
        texts = TextTranslator(needy, TextOptions(match_surface=match_surface))
        for target in ("le chien court.", "le chien court", "le chien court\u00a0!", "le chien court…"):
            assert join(texts.split("the dog runs"), {"the dog runs.": target}.__getitem__).text == "le chien court"
        assert join(texts.split("the dog runs."), lambda _: "le chien court.").text == "le chien court."
        assert join(texts.split("dogs etc"), lambda _: "chiens etc.").text == "chiens etc."

    def test_a_sentence_with_its_own_period_is_split_if_it_is_too_long(self, needy: Translator) -> None:
        sentence = " ".join(["dog"] * 12) + "."
        count = len(needy.source_tokenizer.encode_batch([sentence], special_tokens=True)[0])
        for limit, parts in ((count, 1), (count - 1, 2)):
            plan = TextTranslator(needy, TextOptions(max_sentence_tokens=limit)).split(sentence)
            assert len(plan.sentences) == parts
            assert all(len(source.ids) <= limit for source in plan.sentences)

    def test_a_sentence_that_would_be_too_long_is_read_as_it_is(self, needy: Translator) -> None:
        sentence = " ".join(["dog"] * 12)
        count = len(needy.source_tokenizer.encode_batch([sentence], special_tokens=True)[0])
        for limit, mark in ((count, ""), (count + 1, ".")):
            texts = TextTranslator(needy, TextOptions(max_sentence_tokens=limit))
            assert read_of(texts.split(sentence)) == [sentence + mark]

    @pytest.mark.parametrize("text", ["the red dog runs", "the {name} dog", "the 12 dogs run"])
    def test_words_come_from_the_sentence(self, text: str) -> None:
        texts = word_translator(word_details=True)
        texts._period = "."
        (result,) = texts.translate([text])
        (sentence,) = result.sentences
        assert not result.text.endswith(".")
        for word in sentence.words:
            assert result.text[slice(*word.target_span)] == word.text
            assert word.source_span is None or 0 <= word.source_span[0] < word.source_span[1] <= len(text)


class TestCapitals:
    def test_the_model_reads_lowercase_and_the_translation_has_capitals(self, translator: Translator) -> None:
        for capitals, expected in (("lower", "The old dog {Name} runs"), ("keep", "THE OLD DOG {Name} RUNS")):
            text_translator = TextTranslator(translator, TextOptions(capitals=capitals))  # type: ignore[arg-type]
            plan = text_translator.split("THE OLD DOG {Name} RUNS")
            assert read_of(plan) == [expected]
        plan = TextTranslator(translator, TextOptions(capitals="lower")).split("THE OLD DOG RUNS!")
        assert join(plan, lambda sentence: "le vieux chien court !").text == "LE VIEUX CHIEN COURT !"

    @pytest.mark.parametrize(
        ("source", "read", "translated", "expected"),
        [
            (
                "THE NEW iPHONE IS ON eBay!",
                "The new iPHONE is on eBay!",
                "le iPhone est sur eBay !",
                "LE iPHONE EST SUR eBay !",
            ),
            (
                "iPHONE 15 AND DVDs SOLD",
                "iPHONE 15 and DVDs sold",
                "iPhone 15 et DVDs vendus",
                "iPHONE 15 ET DVDs VENDUS",
            ),
            ("McDONALD'S IS OPEN NOW", "McDONALD's is open now", "mcdonald's est ouvert", "McDONALD'S EST OUVERT"),
            ("I own an iPhone", "I own an iPhone", "un iPhone", "un iPhone"),
            ("eBay", "eBay", "eBay", "eBay"),
            ("STRASSE AND ÉCOLE", "Strasse and école", "rue et école", "RUE ET ÉCOLE"),
            ("2 DOGS: RUN\xa0NOW", "2 Dogs: run\xa0now", "2 chiens", "2 CHIENS"),
        ],
    )
    def test_names_with_capitals_inside_keep_their_spelling(
        self, translator: Translator, source: str, read: str, translated: str, expected: str
    ) -> None:
        options = TextOptions(capitals="lower", match_surface=False)
        plan = TextTranslator(translator, options).split(source)
        assert read_of(plan) == [read]
        assert join(plan, lambda sentence: translated).text == expected

    def test_auto_asks_the_tokenizer(self, translator: Translator) -> None:
        count = [len(source.ids) for source in translator.encode(["THE OLD DOG RUNS", "The old dog runs"])]
        assert count[0] > 1.5 * count[1]  # what this tokenizer does with capitals
        assert read_of(TextTranslator(translator).split("THE OLD DOG RUNS")) == ["The old dog runs"]
        assert read_of(TextTranslator(translator).split("NATO")) == ["NATO"]
        assert read_of(TextTranslator(translator).split("The NATO dog")) == ["The NATO dog"]


@pytest.mark.parametrize(("source", "text", "expected"), RULES["lost"])
def test_what_tokens_do_not_complete_is_left_out_or_a_sign_of_the_source(source: str, text: str, expected: str) -> None:
    assert repaired(source, text) == expected


@pytest.mark.parametrize(
    "said", ["un \ufffd chien", "\ufffd", "{x}\ufffd", "\ufffdun {x} chien\ufffd.", "3 \ufffd {x}"]
)
@pytest.mark.parametrize(
    "text", ["the dog {x} 3", "<p>the <b>dog</b> {x}</p>", "<img alt='the dog'>", "THE BIG DOG", "the \ufffd"]
)
def test_no_translation_has_a_replacement_character_that_its_source_does_not_have(said: str, text: str) -> None:
    translator: Any = SayingTranslator(said, "pt")
    for format in ("text", "html"):
        (result,) = TextTranslator(translator).translate([text], format=format)
        assert "\ufffd" not in result.text or "\ufffd" in text
        assert text != "the dog {x} 3" or any(sentence.is_doubtful for sentence in result.sentences)


@pytest.mark.parametrize("case", RULES["surface"])
def test_first_letter_and_final_punctuation_are_those_of_the_source(case: list[Any]) -> None:
    source, target, language, expected, *changes = case
    rules = {"is_upper": False, "match": True, "repeats": 4, **dict(*changes)}
    assert surface_change(source, target, language, **rules).apply(target) == expected


@pytest.mark.parametrize(("source", "target", "expected"), RULES["loops"])
def test_loops_are_shortened_to_one_copy(source: str, target: str, expected: str) -> None:
    assert surface_change(source, target, "fr", is_upper=False, match=False, repeats=4).apply(target) == expected
    assert surface_change(source, target, "fr", is_upper=False, match=False, repeats=0).apply(target) == target


def test_a_model_that_loops_is_stopped(translator: Translator) -> None:
    """Whatever nonsense is read, the output is at most a few times as long as the source."""
    text_translator = TextTranslator(translator)
    odd = ["zzz zzz zzz", "qwrtp", "Ω ω Ω", "xx\ndog dog dog dog", "ЖЖЖЖЖ"]
    for sentence in (s for result in text_translator.translate(odd) for s in result.sentences):
        assert sentence.translation is not None
        ids = sentence.translation.best.ids
        assert len(ids) <= 3 * len(sentence.translation.source.ids) + 32
