"""Placeholders, URLs and terms of a glossary in translations."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeformer_runtime.errors import DataError
from edgeformer_runtime.translator import Translator
from edgeformer_text.alignment import AlignedSentence, Word, joined, restored
from edgeformer_text.block import Block, Item
from edgeformer_text.glossary import Glossary
from edgeformer_text.markup import html_parts
from edgeformer_text.options import TextOptions
from edgeformer_text.protected import joined_items, protected_items
from edgeformer_text.text_translator import TextTranslator
from tests.text.attended import attended, join, written
from tests.web.rules import RULES


@pytest.mark.parametrize("placeholder", RULES["placeholders"])
def test_placeholders_are_found_whole(placeholder: str) -> None:
    for text in (f"The {placeholder} runs.", f"{placeholder}.", f"({placeholder})", f"x {placeholder}, y"):
        assert [item.text for item in protected_items(Block.plain(text))] == [placeholder]


@given(
    st.lists(st.sampled_from(["{a}", "<code>b</code>", "https://c.d", "+", "/", ":", " ", "e", "<b>", "</b>", "<img>"]))
)
def test_items_with_nothing_but_signs_between_them_are_one(pieces: list[str]) -> None:
    for block in html_parts("".join(pieces)):
        assert isinstance(block, Block)
        items = sorted([*block.items, *protected_items(block)], key=lambda item: item.start)
        joined_up = joined_items(block, items)
        assert all(any(one.start <= item.start and item.end <= one.end for one in joined_up) for item in items)
        for joint in joined_up:
            assert joint.text == block.text[joint.start : joint.end]
            assert joint.raw == "".join(block.raw[joint.start : joint.end])
        for one, other in pairwise(joined_up):
            between = "".join(block.raw[one.end : other.start])
            has_tags = any(one.end <= tag.offset <= other.start for tag in block.tags)
            assert has_tags or len(between) > 3 or re.search(r"[\w\s]", between)


@pytest.mark.parametrize("text", RULES["unprotected"])
def test_other_text_is_no_placeholder(text: str) -> None:
    assert protected_items(Block.plain(text)) == []


@pytest.mark.parametrize(("text", "expected"), RULES["protected"])
def test_placeholders_within_a_text_are_found(text: str, expected: list[str]) -> None:
    assert [item.text for item in protected_items(Block.plain(text))] == expected


@given(
    words=st.lists(
        st.sampled_from([*RULES["placeholders"], "dog", "the sea", "runs,", "HELLO", "12"]), min_size=1, max_size=8
    )
)
def test_every_placeholder_is_there_exactly_as_often(words: list[str]) -> None:
    text = " ".join(words) + "."
    found = [item.text for item in protected_items(Block.plain(text))]
    for capitals in ("lower", "keep"):
        translated = attended(text, format="text", capitals=capitals)
        for placeholder in found:
            assert translated.count(placeholder) == text.count(placeholder)


@pytest.mark.parametrize(("language", "text", "said", "expected"), RULES["spaces"])
def test_the_space_beside_a_placeholder_is_the_one_that_belongs_there(
    language: str, text: str, said: str, expected: str
) -> None:
    assert written(text, said, language) == expected


@pytest.mark.parametrize("placeholder", RULES["placeholders"])
def test_no_space_is_added_or_lost_beside_placeholders(placeholder: str) -> None:
    """Whatever the placeholder, what is beside it, and the spaces that the model writes."""
    for before, after in [("", ","), ("", "."), *map(tuple, ["()", "[]", "“”", '""', "--", "¿?"])]:
        rest = "" if after in ".!?…" else " x."
        text = f"the dog {before}{placeholder}{after}{rest}"
        if [item.text for item in protected_items(Block.plain(text))] == [placeholder]:
            for space in ("", " "):
                said = f"o cão {before}{space if before else ''}{placeholder}{space}{after}{rest}"
                assert written(text, said, "pt") == f"o cão {before}{placeholder}{after}{rest}"
    for left, right in product(("", " "), repeat=2):
        said = f"o cão{left}{placeholder}{right}e."
        assert written(f"the dog {placeholder} runs.", said, "pt") == f"o cão {placeholder} e."
        html = written(f"<p>the dog <b>{escape(placeholder)}</b> runs.</p>", said, "pt", "html")
        assert re.sub("</?[pb]>", "", html) == f"o cão {escape(placeholder)} e."


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("the '%1' dog", ["le", "chien"], "le %1 chien"),
        ("the (%1) dog", ["le", "犬"], "le %1犬"),
        ("the'%1'dog", ["犬", "犬"], "犬%1犬"),
        ("the%1dog", ["le", "chien"], "le%1chien"),
    ],
)
def test_placeholders_whose_quotation_marks_are_lost_are_apart(text: str, target: list[str], expected: str) -> None:
    start = text.index("%")
    item = Item(start, start + 2, "%1", "%1")
    tokens = [(0, 3), (start, start + 2), (len(text) - 3, len(text))]
    words = [Word(word, "", np.eye(3, dtype=np.float32)[place]) for word, place in zip(target, (0, 2), strict=True)]
    sentence = restored(AlignedSentence(words, "", tokens, tokens), [item], text, 0, [item])
    assert joined(sentence.words, "") == expected


class TestMessageFormat:
    @pytest.mark.parametrize(
        "argument",
        [
            "{n, plural, one {# dog} other {# red dog}}",
            "{n,plural,=0{runs}one {the car}other{# red car}}",
            "{who, select, dog {a {name} dog} other {{n, plural, offset:1 one {a #} other {# dog}}}}",
            "{n, selectordinal, one {# car} other {}}",
        ],
    )
    def test_cases_stay(self, argument: str) -> None:
        assert attended(argument, format="text") == argument
        assert attended(f"the dog {argument} a car.", format="text") == f"le chien {argument} une voiture."

    @example(text="a  one {a  one {a  one {")
    @given(
        text=st.lists(st.sampled_from(["{n, plural,", " one {", "# dog", "}", " other {", "{x}", "a ", "'"])).map(
            "".join
        )
    )
    def test_any_text_keeps_its_braces(self, text: str) -> None:
        translated = attended(text, format="text")
        assert [character for character in translated if character in "{}#"] == [
            character for character in text if character in "{}#"
        ]


class TestNotCopied:
    def test_a_copy_with_other_white_space_is_repaired(self, translator: Translator) -> None:
        plan = TextTranslator(translator).split("The dog {user_name} runs %(n)d times.")
        result = join(plan, lambda sentence: "Le chien { user_name } court %(n) d fois.")
        assert result.text == "Le chien {user_name} court %(n)d fois."

    def test_else_the_sentence_is_translated_without_it(self, translator: Translator) -> None:
        text_translator = TextTranslator(translator)
        plan = text_translator.split("The old dog {user_name} runs.")
        expected = text_translator.translate(["The old dog runs."])[0].text
        result = join(plan, lambda sentence: "Le vieux chien ( nom ) court.", translator.translate).text
        assert result.count("{user_name}") == 1
        assert result.replace("{user_name}", "").split() == expected.split()

    def test_several_in_one_place_keep_their_order(self, translator: Translator) -> None:
        plan = TextTranslator(translator).split("The old dog {a} %s 🙂 {b} runs.")
        result = join(plan, lambda sentence: "Le vieux chien court.").text
        places = [result.index(item) for item in ("{a}", "%s", "🙂", "{b}")]
        assert places == sorted(places)

    def test_protection_can_be_switched_off(self, translator: Translator) -> None:
        plan = TextTranslator(translator, TextOptions(protect=False)).split("The dog {name} runs.")
        assert join(plan, lambda sentence: "Le chien court.").text == "Le chien court."


class TestGlossary:
    def test_a_term_replaces_the_words_that_attend_to_it(self) -> None:
        for terms, text, expected in [
            ({"car": "automobile"}, "a red car.", "une automobile rouge."),
            ({"red car": "bolide"}, "a red car.", "une bolide."),
            ({"car": "voiture"}, "a red car.", "une voiture rouge."),
            ({"dog": "toutou"}, "Dog runs", "Toutou court"),
            ({"dog": "toutou"}, "hotdog runs", "hotdog court"),
            ({"dog": "toutou"}, "hot-dog runs", "hot-dog court"),
            ({"DOG": "CHENIL", "dog": "toutou"}, "a DOG and a dog", "une CHENIL and une toutou"),
            ({"red": "bleu", "red car": "bolide"}, "a red car. a red dog", "une bolide. une chien bleu"),
        ]:
            assert attended(text, format="text", glossary=Glossary(terms)) == expected

    @pytest.mark.parametrize("term", ["机器", "サーバー", "เครื่อง", "စက်", "ម៉ាស៊ីន", "ເຄື່ອງ"])
    def test_a_term_is_found_anywhere_in_scripts_without_spaces(self, term: str) -> None:
        glossary = Glossary({term: "machine"})
        for before, after in [
            ("这台", "很好。"),
            ("この", "は"),
            ("“", "”"),
            ("dog", "runs"),
            ("", ""),
            ("1", "2"),
            (" ", " "),
        ]:
            (found,) = glossary.items(Block.plain(before + term + after), [])
            assert (found.start, found.end) == (len(before), len(before) + len(term))
        assert not glossary.items(Block.plain(f"这{term}\u0e49的"), []), "a vowel sign or tone belongs to its letter"
        text = attended(f"the {term}。", format="text", glossary=glossary)
        assert "machine" in text
        assert term not in text
        into = attended("the dog runs", format="text", glossary=Glossary({"dog": term}))
        assert into.count(term) == 1

    @pytest.mark.parametrize("term", ["dog", "собака", "नमस", "کتاب", "개", "ספר", "მანქანა", "é", "e\u0301"])
    def test_a_term_is_a_whole_word_in_other_scripts(self, term: str) -> None:
        glossary = Glossary({term: "machine"})
        for beside in ("a", "я", "क", "ب", "개", "-", "1", "\u200cb"):
            for text in (f"x {beside}{term} y", f"x {term}{beside} y"):
                assert not glossary.items(Block.plain(text), []), text
        for sign in ("\u0301", "\u094d", "\u064e", "\u200d"):
            assert not glossary.items(Block.plain(f"x {term}{sign} y"), []), sign
        for before, after in [("(", ")"), ("这", "很"), ("l'", "."), ("", "")]:
            assert len(glossary.items(Block.plain(before + term + after), [])) == 1

    def test_a_term_is_not_found_across_a_line_end_that_stays(self) -> None:
        glossary = Glossary({"red car": "bolide"})
        assert attended("a red\ncar", format="text", glossary=glossary) == "une rouge\nvoiture"
        assert attended("<p>a red\ncar</p>", glossary=glossary) == "<p>une bolide</p>"

    def test_terms_in_html_are_escaped(self) -> None:
        assert attended("<p>a <b>car</b></p>", glossary=Glossary({"car": "R&D"})) == "<p>une <b>R&amp;D</b></p>"

    def test_comments_and_blank_lines_of_a_file_are_skipped(self, tmp_path: Path) -> None:
        path = tmp_path / "terms.tsv"
        path.write_text("\ufeff# term\ttranslation\n#no tab\n \ndog\ttoutou\r\n", encoding="utf-8")
        assert Glossary.from_file(path).terms == {"dog": "toutou"}

    def test_blank_terms_are_refused(self) -> None:
        with pytest.raises(DataError, match="must not be blank"):
            Glossary({"dog": " "})
