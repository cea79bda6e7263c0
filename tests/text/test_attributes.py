"""Attributes of HTML that people read are translated; how they are written stays as it is."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.translator import Translator
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.text.attended import attended, join, text_translator

VALUES = ["", "a dog", "a 'red' car", "The sea.&#10;Dogs &amp; cars", "&quot;dog&quot; &eacute;", "{{x}}", "12", "<b>"]
TAGS = st.builds(
    "<{}{}={}{}{}{}>".format,
    st.sampled_from(["img ", "p ", "IMG src=x ", "input\ntype='submit' ", "b ", "textarea "]),
    st.sampled_from(["alt", "TITLE", "title ", "placeholder", "value", "href", "aria-label", ":title"]),
    quote := st.shared(st.sampled_from(['"', "'"])),
    st.sampled_from([value for value in VALUES if "'" not in value]),
    quote,
    st.sampled_from(["", "/", " hidden", " title='a dog'"]),
)
DOCUMENTS = st.lists(TAGS | st.sampled_from(["dog ", "</p>", "</b>"]), max_size=8).map("".join)


class Reader(HTMLParser):
    """Reads start tags as another parser does."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ('a <img alt="a red car"> dog', 'une <img alt="une voiture rouge"> chien'),
        ("<p Title = 'a dog' id=x>a dog</p>", "<p Title = 'une chien' id=x>une chien</p>"),
        ("<img alt=dog/><img alt=dog src=dog>", "<img alt=chien/><img alt=chien src=dog>"),
        ('<img alt="car &amp; &quot; &eacute; x">', '<img alt="voiture &amp; &quot; é x">'),
        ('a <b title="a dog">red</b> <i>car</i>', 'une <i>voiture</i> <b title="une chien">rouge</b>'),
        ('<textarea placeholder="a dog">a dog</textarea>', '<textarea placeholder="une chien">a dog</textarea>'),
        ('<code title="a dog">a dog</code> runs', '<code title="une chien">a dog</code> court'),
        ('<svg aria-label="a dog"><g/></svg> the', '<svg aria-label="une chien"><g/></svg> le'),
        ('<input type=Submit value="a dog">', '<input type=Submit value="une chien">'),
        (
            '<meta name="Description" content="a red car. the dog">',
            '<meta name="Description" content="une voiture rouge. le chien">',
        ),
        ('<optgroup label="a dog"><option value="a dog">', '<optgroup label="une chien"><option value="a dog">'),
    ],
)
def test_what_people_read_is_translated(document: str, expected: str) -> None:
    assert attended(document) == expected


@pytest.mark.parametrize(
    "name", ["title", *map("aria-{}".format, ["label", "description", "placeholder", "roledescription", "valuetext"])]
)
def test_attributes_of_any_element_are_translated(name: str) -> None:
    assert attended(f'<p {name}="a dog">a red car</p>') == f'<p {name}="une chien">une voiture rouge</p>'


@pytest.mark.parametrize(
    "document",
    [
        '<img translate="no" alt="a dog">',
        '<p translate=no>a <img alt="a dog"></p>',
        '<span class="notranslate" title="a dog">a dog <b title="a car">dog</b></span>',
        '<input value="a dog"><input type=hidden value="a dog">',
        '<meta name="viewport" content="a dog"><link title="a dog">',
        '<a href="a dog" data-title="a dog" :title="dog" alt="a dog"></a>',
        '<img alt=""><img alt="12"><img alt="https://dog.example/a"><img alt>',
    ],
)
def test_other_attributes_are_copied(document: str) -> None:
    assert attended(document) == document


def test_a_translation_of_several_words_needs_no_quotes() -> None:
    plan = text_translator().split("<img alt=dog src=x>", format="html")
    assert join(plan, lambda _: 'le "petit" chien d\'eau').text == (
        "<img alt=le&#32;&#34;petit&#34;&#32;chien&#32;d&#39;eau src=x>"
    )


@examples(15, 100)
@given(document=DOCUMENTS)
def test_names_order_and_number_of_attributes_stay(translator: Translator, document: str) -> None:
    plan = TextTranslator(translator).split(document, format="html")
    before, copied = Reader(document).tags, Reader(join(plan).text).tags
    assert copied == before
    found = Reader(join(plan, lambda sentence: f"{sentence} \"x\" 'y' & <z>").text).tags
    assert [tag for tag, _ in found] == [tag for tag, _ in before]
    for (_, old), (_, new) in zip(before, found, strict=True):
        assert [name for name, _ in new] == [name for name, _ in old]
        for (name, value), (_, translated) in zip(old, new, strict=True):
            assert translated == value or (name not in ("href", ":title") and "\"x\" 'y' & <z>" in str(translated))


def test_attributes_with_placeholders_and_terms_are_texts_like_others(translator: Translator) -> None:
    texts = TextTranslator(translator)
    document = '<p title="The old dog {name} runs.">The old <b title="The sea.">dog</b> runs.</p>'
    (result,) = texts.translate([document], format="html")
    name, sea = texts.translate(["The old dog {name} runs.", "The sea."])
    assert f'<p title="{name.text}">' in result.text
    assert f'<b title="{sea.text}">' in result.text
    assert "{name}" in name.text
    assert len(result.sentences) == 1
