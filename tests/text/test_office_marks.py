"""Fields, bookmarks and comments of office documents stay whole in whatever order words are translated."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from edgeformer_text.block import Block
from edgeformer_text.documents.files import read_document, translate_content
from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.text.attended import ReversingTranslator, text_translator
from tests.text.test_documents import ODT, W, docx, packed, unpacked, words_of

NAMESPACE = f"{{{W}}}"


def run(content: str) -> str:
    return f"<w:r>{content}</w:r>"


def text(content: str) -> str:
    return run(f"<w:t>{content}</w:t>")


def mark(kind: str) -> str:
    return run(f'<w:fldChar w:fldCharType="{kind}"/>')


def head(instruction: str) -> str:
    return f"{mark('begin')}{run(f'<w:instrText> {instruction} </w:instrText>')}{mark('separate')}"


def field(instruction: str, result: str) -> str:
    return f"{head(instruction)}{result}{mark('end')}"


def reversing() -> TextTranslator:
    translator: Any = ReversingTranslator()
    return TextTranslator(translator, TextOptions(match_surface=False, max_repeats=0, check_numbers=False))


def translated(body: str, translator: TextTranslator | None = None) -> str:
    return words_of(translate_content(translator or text_translator(), docx(body), "a.docx")[0])


def shown(body: str) -> str:
    return re.sub(r"<w:instrText>.*?</w:instrText>|<[^>]*>", "", body)


def test_footnote_marks_and_indices_stay_above_and_below_the_line() -> None:
    def raised(content: str, level: str) -> str:
        return run(f'<w:rPr><w:vertAlign w:val="{level}"/></w:rPr><w:t>{content}</w:t>')

    note, index = raised("[1]", "superscript"), raised("2", "subscript")
    body = f"<w:p>{text('the dog')}{note}{text(' runs H')}{index}{text('O')}</w:p>"
    document = read_document(docx(body), "a.docx")
    assert [block.text for (block,) in document.pieces if isinstance(block, Block)] == ["the dog runs H2O"]
    assert translated(body) == f"<w:p>{text('le chien')}{note}{text(' court H')}{index}{text('O')}</w:p>"


def test_a_footnote_mark_does_not_join_the_words_around_it() -> None:
    note = run('<w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>1</w:t>')
    body = f"<w:p>{text('the dog')}{note}{text('runs')}</w:p>"
    assert translated(body) == f"<w:p>{text('le chien')}{note}{text(' court')}</w:p>"


class TestComputedFields:
    def test_they_move_as_a_whole_and_are_not_translated(self) -> None:
        date = field("DATE \\@ x", text("dog"))
        found = translated(f"<w:p>{text('the red ')}{date}{text(' runs.')}</w:p>", reversing())
        assert date in found
        assert shown(found) == ". runs dog red the"

    def test_the_model_reads_their_result(self) -> None:
        body = f"<w:p>{text('the dog ')}{field('REF _Ref1', text('12'))}{text(' runs')}</w:p>"
        document = read_document(docx(body), "a.docx")
        assert [block.text for (block,) in document.pieces if isinstance(block, Block)] == ["the dog 12 runs"]
        found = translated(body)
        assert found == f"<w:p>{text('le chien ')}{field('REF _Ref1', text('12'))}{text(' court')}</w:p>"

    def test_equal_numbers_go_with_the_words_they_come_from(self) -> None:
        pages, page = field("NUMPAGES", text("3")), field("PAGE", text("3"))
        found = translated(f"<w:p>{text('3 dog ')}{page}{text(' car ')}{pages}{text(' 33')}</w:p>", reversing())
        assert shown(found) == "33 3 car 3 dog 3"
        assert found.index("NUMPAGES") < found.index("car") < found.index("PAGE ") < found.index("dog")

    def test_simple_fields_are_like_them(self) -> None:
        simple = f'<w:fldSimple w:instr=" AUTHOR ">{text("a dog")}</w:fldSimple>'
        assert translated(f"<w:p>{text('the car ')}{simple}</w:p>") == f"<w:p>{text('le voiture ')}{simple}</w:p>"

    def test_marks_within_a_run_of_text_are_found(self) -> None:
        marks = re.sub("</?w:r>", "", field("PAGE", text("7")))
        found = translated(f"<w:p>{run(f'<w:t>the dog </w:t>{marks}<w:t> runs</w:t>')}</w:p>")
        assert found == f"<w:p>{text('le chien ')}{field('PAGE', text('7'))}{text(' court')}</w:p>"

    def test_fields_in_fields_are_part_of_them(self) -> None:
        inner = field("MERGEFIELD x", text("the"))
        whole = (
            f"{mark('begin')}{run('<w:instrText> IF </w:instrText>')}{inner}{mark('separate')}{text('a')}{mark('end')}"
        )
        found = translated(f"<w:p>{text('red dog ')}{whole}{text(' car')}</w:p>", reversing())
        assert whole in found
        assert shown(found.replace(inner, "")) == "car a dog red"

    def test_fields_without_a_result_stay(self) -> None:
        entry = f"{mark('begin')}{run('<w:instrText> XE dog </w:instrText>')}{mark('end')}"
        assert translated(f"<w:p>{text('a red ')}{entry}{text('car')}</w:p>").count(entry) == 1


class TestLinks:
    def test_their_text_is_translated_between_their_marks(self) -> None:
        link = field('HYPERLINK "http://x.y"', "{}")
        found = translated(f"<w:p>{text('a ')}{link.format(text('red'))}{text(' car runs')}</w:p>")
        assert found == f"<w:p>{text('une voiture ')}{link.format(text('rouge'))}{text(' court')}</w:p>"

    def test_a_table_of_contents_is_translated(self) -> None:
        number = field("PAGEREF _Toc1", text("3"))
        entry = field('HYPERLINK \\\\l "_Toc1"', "{}" + run("<w:tab/>") + number)
        link = '<w:hyperlink w:anchor="_Toc2">{}' + run("<w:tab/>") + number + "</w:hyperlink>"
        body = f"<w:p>{head('TOC')}{entry}</w:p><w:p>{link}</w:p><w:p>{mark('end')}</w:p>"
        found = translated(body.format(text("the dog"), text("a red car")))
        assert found == body.format(text("le chien"), text("une voiture rouge"))


def marks_of(document: str) -> list[str]:
    """Kinds of the marks of fields, in order, with the instructions of those that begin."""
    root = etree.fromstring(f'<w:body xmlns:w="{W}">{document}</w:body>')
    marks = root.iter(f"{NAMESPACE}fldChar", f"{NAMESPACE}instrText")
    return [mark.get(f"{NAMESPACE}fldCharType") or (mark.text or "").strip() for mark in marks]


def assert_whole(document: str) -> None:
    """Check that fields are balanced, with instructions before results, and that no range ends before it begins."""
    stack: list[str] = []
    for kind in marks_of(document):
        if kind == "begin":
            stack.append(kind)
        elif kind == "separate":
            assert stack[-1] == "begin"
            stack[-1] = kind
        elif kind == "end":
            assert stack.pop() in ("begin", "separate")
        else:
            assert stack[-1] == "begin", f"the instruction {kind} is outside a field, or in its result"
    assert not stack
    for kind, number in re.findall(r'<w:(bookmark|commentRange)Start w:id="(\d+)"', document):
        start, end = (document.index(f'<w:{kind}{side} w:id="{number}"') for side in ("Start", "End"))
        assert start < end


WORDS = ["the dog ", "a red car. ", "runs", " 3 ", "3", "it is 33. "]
TEXTS = st.builds(
    lambda words, bold: run(f"{'<w:rPr><w:b/></w:rPr>' * bold}<w:t>{words}</w:t>"),
    st.sampled_from(WORDS),
    st.booleans(),
)
INSTRUCTIONS = st.sampled_from(["PAGE", "HYPERLINK x", "TOC", "REF y"])


def joined(parts: list[str]) -> str:
    return "".join(parts)


def contents(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, max_size=4).map(joined)
    fields = st.builds(field, INSTRUCTIONS, several)
    return fields | several | several.map(lambda parts: f"<w:ins>{parts}</w:ins>")


CONTENTS = st.lists(st.recursive(TEXTS, contents), max_size=6).map(joined)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Paragraphs that fields, changes, bookmarks and comments may begin and end anywhere in."""
    units = re.findall(r"<w:r>.*?</w:r>|</?w:ins>", draw(CONTENTS))
    alone = draw(st.sets(st.integers(0, len(units)), max_size=4))
    units = [f"<w:smartTag>{u}</w:smartTag>" if i in alone and "<w:r>" in u else u for i, u in enumerate(units)]
    for number in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(["bookmark", "commentRange"]))
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(units))] * 2)))
        units.insert(last, f'<w:{kind}End w:id="{number}"/>')
        units.insert(first, f'<w:{kind}Start w:id="{number}"/>')
    depth, paragraphs = 0, ["<w:p>"]
    for unit in units:
        depth += (unit == "<w:ins>") - (unit == "</w:ins>")
        paragraphs.append(unit)
        if not depth and draw(st.integers(0, 9)) == 0:
            paragraphs.append("</w:p><w:p>")
    return joined(paragraphs) + "</w:p>"


DIVIDED = (
    f'<w:p>{text("the dog ")}<w:bookmarkStart w:id="0"/>{text("the dog ")}{mark("begin")}'
    f'{run("<w:instrText> PAGE </w:instrText>")}<w:bookmarkEnd w:id="0"/></w:p>'
    f"<w:p>{mark('separate')}{mark('end')}</w:p>"
)


@example(body=DIVIDED)
@given(body=documents())
def test_documents_stay_whole_in_any_order_of_words(body: str) -> None:
    assert_whole(body)
    found = translated(body, reversing())
    assert_whole(found)
    assert sorted(marks_of(found)) == sorted(marks_of(body))
    for name in ("bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd"):
        assert found.count(f"<w:{name}") == body.count(f"<w:{name}")
    lost = Counter(shown(body).replace(" ", "")) - Counter(shown(found).replace(" ", ""))
    assert not lost  # elements that get no word of the translation keep those of the source


class TestRanges:
    def test_each_end_is_placed_by_itself(self) -> None:
        start, end = '<w:commentRangeStart w:id="1"/>', '<w:commentRangeEnd w:id="1"/>'
        found = translated(f"<w:p>{text('the dog ')}{start}{text('runs')}{end}{text(' runs')}</w:p>")
        assert found == f"<w:p>{text('le chien ')}{start}{text('court')}{end}{text(' court')}</w:p>"

    @pytest.mark.parametrize(("start", "end"), [("", "<w:ins>{}</w:ins>"), ("<w:ins>{}</w:ins>", "")])
    def test_they_end_behind_their_beginning(self, start: str, end: str) -> None:
        first, last = '<w:bookmarkStart w:id="1" w:name="x"/>', '<w:bookmarkEnd w:id="1"/>'
        body = f"{text('the ')}{(start or '{}').format(first + text('dog'))}{text(' runs ')}"
        body = f"<w:p>{body}{(end or '{}').format(text('red') + last)}{text(' car')}</w:p>"
        found = translated(body, reversing())
        assert_whole(found)
        assert found.count(first) == found.count(last) == 1


def open_document(body: str) -> str:
    content = packed({"mimetype": "application/x", "content.xml": f"<office:x {ODT}>{body}</office:x>"})
    return unpacked(translate_content(reversing(), content, "a.odt")[0], "content.xml")


class TestOpenDocument:
    @pytest.mark.parametrize(
        ("start", "end"),
        [
            ('<text:bookmark-start text:name="x"/>', '<text:bookmark-end text:name="x"/>'),
            ('<text:reference-mark-start text:name="x"/>', '<text:reference-mark-end text:name="x"/>'),
            ('<text:toc-mark-start text:id="x"/>', '<text:toc-mark-end text:id="x"/>'),
            ('<office:annotation office:name="x"/>', '<office:annotation-end office:name="x"/>'),
        ],
    )
    def test_ranges_end_behind_their_beginning(self, start: str, end: str) -> None:
        crossed = f"<text:p>the {start}red <text:span>dog{end} runs</text:span> car</text:p>"
        found = open_document(crossed)
        assert 0 < found.index(start) < found.index(end)
        assert shown(found).split() == ["car", "runs", "dog", "red", "the"]

    def test_fields_are_read_and_not_translated(self) -> None:
        number = '<text:page-number text:select-page="current">12</text:page-number>'
        assert f"<text:p>car {number} dog</text:p>" in open_document(f"<text:p>dog {number} car</text:p>")
        body = "<text:p>the <text:span>red<!-- dog --><text:script>car</text:script></text:span> dog</text:p>"
        document = read_document(packed({"content.xml": f"<office:x {ODT}>{body}</office:x>"}), "a.odt")
        assert [block.text for (block,) in document.pieces if isinstance(block, Block)] == ["the red dog"]
