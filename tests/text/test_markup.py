"""HTML in, HTML out."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.translator import Translator
from edgeformer_text.block import Block, Item, read
from edgeformer_text.markup import html_parts
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.bundles import copy_of, without_attention
from tests.text.attended import WordTranslator, attended, join, rewritten

TAG = re.compile(r"<[^<>]*>")
MARKUP = [
    *("<b>", "</b>", "<i>", "</i>", "<p>", "</p>", "<br>", "<br/>", "<div>", "</div>", "<script>", "</script>"),
    *("<code>", "</code>", "</span>", "<a href='x>y'>", "</a>", "<img src=1>", "<!-- c -->", "<!doctype html>"),
    *('<span translate="no">', '<a b="', "<", ">", "</", "<>", "<1>", "&amp;", "&nbsp;", "&", "&lt;", "&eacute;"),
    *("&#x41;", "&#0;", "&notanentity;", "The dog runs. ", "the sea", " ", "\n", "HELLO OLD WORLD", "12", ".", "{x}"),
    *("  ", "x"),
]
NESTED = st.recursive(
    st.sampled_from(MARKUP),
    lambda inner: st.tuples(
        st.sampled_from(("b", "p", "div", "span translate=no", "script", "a href='x>y'", "pre", "svg:x")),
        st.lists(inner, max_size=3).map("".join),
    ).map(lambda parts: f"<{parts[0]}>{parts[1]}</{parts[0].split()[0]}>"),
    max_leaves=12,
)
ANY_HTML = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(MARKUP), max_size=25).map("".join), NESTED)


REFERENCES = [
    "&",
    *(f"&{name}" for name in ("copy", "nbsp;", "not", "notin;", "NotEqualTilde;", "semi;", "foo;", "fjlig;")),
]
REFERENCES += ["&#65", "&#0;", "&#1;", "&#128;", "&#x41", "&#xD800;", "&amp", "&AMP", "&lt", "&lt;", "&#59;", "&eacute"]
WRITTEN = st.lists(st.sampled_from([*REFERENCES, "q", "it;", ";", " ", "1", "=", "&"])).map("".join)


@examples(25, 100)
@given(text=WRITTEN)
def test_the_model_reads_the_characters_that_a_browser_shows(text: str) -> None:
    blocks = [part for part in html_parts(text) if isinstance(part, Block)]
    assert "".join(block.text for block in blocks) == html.unescape(text).replace("\ufffd", "")
    assert "\ufffd" not in attended(text)
    if "&" not in html.unescape(text):
        assert "&" not in html.unescape(attended(f"{text} dog {text}."))
    shown, expected = (html.unescape(each) for each in (attended(text), text))
    assert Counter(shown)["\ufffd"] == Counter(expected)["\ufffd"]
    assert "".join(shown.replace("\ufffd", "").split()) == "".join(expected.replace("\ufffd", "").split())


@pytest.mark.parametrize("reference", REFERENCES)
def test_what_an_attribute_shows_is_what_the_model_reads(reference: str) -> None:
    for following in ("", " ", "x", "=", ";", "1", "."):
        is_text = not reference.endswith(";") and following in ("x", "=", "1")
        (image,) = html_parts(f'<img alt="dog {reference}{following}">')
        assert isinstance(image, Block)
        shown = (
            f"{reference}{following}"
            if is_text and not reference.startswith("&#")
            else html.unescape(reference + following)
        )
        if not reference.startswith("&#"):
            assert image.texts[1:] == [f"dog {shown}"]


@pytest.fixture(scope="module")
def text_translator(translator: Translator) -> TextTranslator:
    return TextTranslator(translator)


@given(document=ANY_HTML)
def test_parts_are_the_whole_document(document: str) -> None:
    parts = list(html_parts(document))
    assert all(len(part.text) == len(part.origins) - 1 for part in parts if isinstance(part, Block))
    assert rewritten(parts) == document


def test_unknown_elements_end_a_sentence_of_a_page_but_not_of_a_message() -> None:
    def texts(**options: bool) -> list[str]:
        return [part.text for part in html_parts("the <tip>dog</tip> runs", **options) if isinstance(part, Block)]

    assert texts() == ["the ", "dog", " runs"]
    assert texts(is_message=True) == texts(is_cue=True) == ["the dog runs"]


@given(document=ANY_HTML)
def test_no_document_is_refused_and_every_tag_is_kept(text_translator: TextTranslator, document: str) -> None:
    plan = text_translator.split(document, format="html")
    result = join(plan, lambda sentence: f"la {sentence}").text
    raws = Counter(
        tag if isinstance(tag, str) else tag.raw
        for part in html_parts(document)
        for tag in ([part] if isinstance(part, str) else part.tags)
    )
    for raw, count in raws.items():
        assert result.count(raw) >= count


@pytest.mark.parametrize(
    "copied",
    [
        "<script>if (a<b) document.write('<b>The dog</b>');</script>",
        "<style>p > a { color: red }</style>",
        "<pre>The dog\n  runs</pre>",
        '<p translate="no">The <b>dog</b> runs.</p>',
        "<p class='x notranslate'>The dog runs.</p>",
        "<textarea>The <b> dog</textarea>",
        "<!-- The dog runs. -->",
        "<p>&copy; 2024 &nbsp; &amp;</p>",
        "<p class=notranslate>The dog runs.</p>",
        "<?php if ($dog->runs) { echo 'The dog'; } ?>",
        "<?= $dog->name ?>",
        "<% if dog > 1 %>",
        "<p>12 <b>34</b></p>",
    ],
)
def test_what_is_not_translated_is_copied(text_translator: TextTranslator, copied: str) -> None:
    document = f"<p>The dog runs.</p>{copied}<p>The sea.</p>"
    (result,) = text_translator.translate([document], format="html")
    assert copied in result.text
    assert "dog runs.</p>" not in result.text.replace(copied, "")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<p translate=no>a dog<p>a dog", "<p translate=no>a dog<p>une chien"),
        ("<p translate=no>a <b>dog</b><div>a dog</div>", "<p translate=no>a <b>dog</b><div>une chien</div>"),
        ("<p translate=no>a <b>dog<hr>a dog", "<p translate=no>a <b>dog<hr>une chien"),
        ("<div><p translate=no>a dog</div>a dog", "<div><p translate=no>a dog</div>une chien"),
        ("<ul><li translate=no>a dog<li>a dog</ul>", "<ul><li translate=no>a dog<li>une chien</ul>"),
        (
            "<ul><li translate=no>a<ul><li>dog<li>car</ul>dog<li>a dog</ul>",
            "<ul><li translate=no>a<ul><li>dog<li>car</ul>dog<li>une chien</ul>",
        ),
        ("<dl><dt class=notranslate>dog<dd>dog</dl>", "<dl><dt class=notranslate>dog<dd>chien</dl>"),
        ("<table><tr translate=no><td>dog<td>car<tr><td>dog", "<table><tr translate=no><td>dog<td>car<tr><td>chien"),
        (
            "<select><option translate=no>dog<option>dog</select>",
            "<select><option translate=no>dog<option>chien</select>",
        ),
        ("a dog<p translate=no>a dog", "une chien<p translate=no>a dog"),
    ],
)
def test_elements_without_an_end_tag_end_as_in_browsers(document: str, expected: str) -> None:
    assert attended(document) == expected


def test_the_model_reads_what_is_copied_inside_a_sentence_but_no_footnote_mark() -> None:
    document = "the <code>a <b>x</b></code> dog<sup>[1]</sup> <kbd title='y'>z</kbd> H<sub>2</sub>O"
    (block,) = html_parts(document)
    assert isinstance(block, Block)
    assert block.text == "the a x dog z H2O"
    assert [item.text for item in block.items] == ["a x", "z", "2"]


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ("dog<sup>[1]</sup>runs", "dog runs"),
        ("<b>dog<sup>[1]</sup></b><i>runs</i>", "dog runs"),
        ("dog<img><code>x</code>", "dog x"),
        ("dog<sup>[1]</sup>, runs", "dog, runs"),
        ("dog<sup>[1]</sup> runs", "dog runs"),
        ("dog<wbr>gy dog<!-- -->gy", "doggy doggy"),
        ("狗<sup>[1]</sup>跑", "狗跑"),
    ],
)
def test_words_on_both_sides_of_an_image_or_a_footnote_mark_are_two(document: str, text: str) -> None:
    (block,) = html_parts(document)
    assert isinstance(block, Block)
    assert block.text == text
    assert [block.text[item.start : item.end] for item in block.items] == [item.text for item in block.items]
    assert re.sub(r"<[^<>]*>|\[1\]|x", "", "".join(block.raw)) == re.sub(r"<[^<>]*>|\[1\]|x", "", document)


@pytest.mark.parametrize(
    ("text", "bare"), [("dog{x}runs", "dog runs"), ("a dog{x}{y}runs {z}.", "a dog runs ."), ("狗{x}跑", "狗跑")]
)
def test_words_on_both_sides_of_a_placeholder_that_the_model_does_not_read_are_two(text: str, bare: str) -> None:
    items = [Item(*match.span(), match[0], match[0]) for match in re.finditer(r"\{\w\}", text)]
    reading = read(Block.plain(text), (0, len(text)), items, without=items)
    assert reading.text == bare
    kept = [(character, text[offset]) for character, offset in zip(reading.text, reading.offsets, strict=False)]
    assert all(character in (" ", origin) for character, origin in kept)


@pytest.mark.parametrize(
    "document", ["dog <code>dog </code>", "<p><var> x</var> dog</p>", "<code> dog </code>dog. <s>x</s>"]
)
def test_white_space_inside_elements_that_are_copied_stays(document: str) -> None:
    copied = re.search(r"<(code|var)>.*</\1>", document)
    assert copied is not None
    assert attended(document).count(copied[0]) == 1


def test_an_element_whose_words_have_little_attention_goes_around_those_that_prefer_it() -> None:
    translator: Any = WordTranslator()
    translator.share = 0.35
    texts = TextTranslator(translator)
    for document, expected in [
        ("the <b>dog</b> runs", "le <b>chien</b> court"),
        ("a <b>red</b> <i>car</i> runs", "une <i>voiture</i> <b>rouge</b> court"),
    ]:
        assert texts.translate([document], format="html")[0].text == expected


def test_without_attention_tags_keep_their_relative_place(small_bundle: Path, tmp_path: Path) -> None:
    bundle = without_attention(copy_of(small_bundle, tmp_path / "bundle"))
    with Translator.open(bundle, threads=1) as translator:
        document = "<b>The old dog</b> runs near the <i>sea</i>."
        (result,) = TextTranslator(translator).translate([document], format="html")
        (plain,) = TextTranslator(translator).translate(["The old dog runs near the sea."])
    assert Counter(TAG.findall(result.text)) == Counter(TAG.findall(document))
    assert result.text.startswith("<b>")
    assert result.text.index("</b>") < result.text.index("<i>")
    assert TAG.sub("", result.text) == plain.text


@pytest.mark.parametrize("space", [("", " "), (" ", ""), (" ", " ")])
@pytest.mark.parametrize("tag", ["<img src=x>", "<wbr>", "<!-- x -->", "<img src=x> <img src=y>"])
def test_white_space_around_a_single_tag_stays(space: tuple[str, str], tag: str) -> None:
    tag = tag.join(space)
    assert attended(f"the dog{tag}runs.") == f"le chien{tag}court."


@pytest.mark.parametrize("is_message", [False, True])
def test_names_of_elements_without_content_are_free_in_messages(is_message: bool) -> None:
    (block,) = html_parts("a <img>red</img> car <img>", is_message=is_message)
    assert isinstance(block, Block)
    partners = [tag.partner for tag in block.tags]
    assert partners == ([1, 0, None] if is_message else [None] * 3)
