"""Formats, links, fields, bookmarks and comments of office documents stay whole in whatever order words come."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from edgeformer_runtime.errors import DataError
from edgeformer_text.block import Block
from edgeformer_text.documents.files import read_document, translate_content
from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.commands import error
from tests.commands import run as command
from tests.text.attended import ReversingTranslator, text_translator
from tests.text.test_documents import W, docx, packed, unpacked

NAMESPACE = f"{{{W}}}"
ODT = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)
BOLD = "<w:rPr><w:b/></w:rPr>"


def run(content: str) -> str:
    return f"<w:r>{content}</w:r>"


def text(content: str, format: str = "") -> str:
    return run(f"{format}<w:t>{content}</w:t>")


def field_char(kind: str) -> str:
    return run(f'<w:fldChar w:fldCharType="{kind}"/>')


def head(instruction: str) -> str:
    return f"{field_char('begin')}{run(f'<w:instrText> {instruction} </w:instrText>')}{field_char('separate')}"


def field(instruction: str, result: str) -> str:
    return f"{head(instruction)}{result}{field_char('end')}"


def reversing() -> TextTranslator:
    translator: Any = ReversingTranslator()
    return TextTranslator(translator, TextOptions(match_surface=False, max_repeats=0, check_numbers=False))


def words_of(content: bytes) -> str:
    """Body of a Word document, without its frame."""
    body = re.search(r"<w:body>(.*)</w:body>", unpacked(content, "word/document.xml"), re.DOTALL)
    assert body is not None
    return body[1].replace(' xml:space="preserve"', "")


def translated(body: str, translator: TextTranslator | None = None) -> str:
    """The body of a Word document with a body."""
    return words_of(translate_content(translator or text_translator(), docx(body), "a.docx")[0])


def read(content: bytes, name: str) -> list[str]:
    """What is translated of the blocks of a document."""
    document = read_document(content, name)
    return [block.text for (block,) in document.pieces if isinstance(block, Block)]


def shown(body: str) -> str:
    return re.sub(r"<w:instrText>.*?</w:instrText>|<[^>]*>", "", body)


STYLE, STYLE_BOLD = '<w:rPr><w:rStyle w:val="L"/></w:rPr>', '<w:rPr><w:rStyle w:val="L"/><w:b/></w:rPr>'
LANGUAGE = '<w:rPr><w:lang w:val="en-US"/></w:rPr>'
NOTE = run('<w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>[1]</w:t>')
INDEX = run('<w:rPr><w:vertAlign w:val="subscript"/></w:rPr><w:t>2</w:t>')
PARAGRAPHS = {
    "runs of one format are one text": (
        f"<w:pPr/>{text('a r')}{text('ed car.')}",
        f"<w:pPr/>{text('une voiture rouge.')}",
    ),
    "formats follow their words": (
        text("a ") + text("red", BOLD) + text(" car and more cars."),
        text("une voiture ") + text("rouge", BOLD) + text(" and more cars."),
    ),
    "the spelling check divides no text": (
        f"{text('a r', LANGUAGE)}<w:proofErr/><w:r w:rsidR='1'><w:t>ed</w:t></w:r>"
        + text(" car", "<w:rPr><w:noProof/></w:rPr>"),
        text("une voiture rouge", LANGUAGE),
    ),
    "all words of a link have a format of the link": (
        f"{text('the dog runs ')}<w:hyperlink>{text('a ', STYLE)}{text('red', STYLE_BOLD)}{text(' car', STYLE)}"
        "</w:hyperlink>",
        f"{text('le chien court ')}<w:hyperlink>{text('une voiture ', STYLE)}{text('rouge', STYLE_BOLD)}</w:hyperlink>",
    ),
    "text boxes are translated": (
        run(f"<w:t>a dog</w:t><w:pict><w:p>{text('a car')}</w:p></w:pict>"),
        text("une chien") + run(f"<w:pict><w:p>{text('une voiture')}</w:p></w:pict>"),
    ),
    "tables, bookmarks and breaks stay": (
        f"{text('a dog')}{run('<w:br/><w:t> runs.</w:t>')}<w:bookmarkEnd/></w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{text('a car')}</w:p></w:tc></w:tr></w:tbl><w:p>{text('the')}",
        f"{text('une chien')}{run('<w:br/>')}{text(' court.')}<w:bookmarkEnd/></w:p>"
        f"<w:tbl><w:tr><w:tc><w:p>{text('une voiture')}</w:p></w:tc></w:tr></w:tbl><w:p>{text('le')}",
    ),
    **{
        f"{joint} stays between its words": (
            between.format(joint).join(("<w:r><w:t>a dog</w:t>", "<w:t>a car</w:t></w:r>")),
            text("une chien") + run(joint) + text("une voiture"),
        )
        for joint in ("<w:tab/>", "<w:br/>", '<w:br w:type="page"/>')
        for between in ("{}", "</w:r><w:r>{}</w:r><w:r>")
    },
    "footnote numbers and indices stay above and below the line": (
        text("the dog") + NOTE + text(" runs H") + INDEX + text("O"),
        text("le chien") + NOTE + text(" court H") + INDEX + text("O"),
    ),
    "a footnote number does not join the words around it": (
        text("the dog") + NOTE + text("runs"),
        text("le chien") + NOTE + text(" court"),
    ),
}


@pytest.mark.parametrize(("body", "expected"), PARAGRAPHS.values(), ids=PARAGRAPHS)
def test_paragraphs(body: str, expected: str) -> None:
    assert translated(f"<w:p>{body}</w:p>") == f"<w:p>{expected}</w:p>"


@pytest.mark.parametrize("container", ["hyperlink", "ins", "moveTo", "smartTag"])
def test_page_numbers_notes_and_formats_inside_links_and_changes_stay(container: str) -> None:
    note, number = '<w:footnoteReference w:id="2"/>', field_char("begin") + text("3") + field_char("end")
    found = translated(
        f"<w:p><w:{container}>{text('a dog')}{run('<w:tab/>')}{number}</w:{container}></w:p>"
        f"<w:p><w:{container}>{text('a ')}{text('red', BOLD)}{run(f'<w:t> car</w:t>{note}')}</w:{container}></w:p>"
    )
    first, second = found.split("</w:p><w:p>")
    assert first == f"<w:p><w:{container}>{text('une chien')}{run('<w:tab/>')}{number}</w:{container}>"
    assert shown(second) == "une voiture rouge"
    assert text("rouge", BOLD) in second
    assert second.count(note) == 1
    assert second.endswith(f"</w:{container}></w:p>")


def test_the_model_reads_indices_but_no_footnote_numbers() -> None:
    body = text("the dog") + NOTE + text(" runs H") + INDEX + text("O")
    assert read(docx(f"<w:p>{body}</w:p>"), "a.docx") == ["the dog runs H2O"]


def test_headers_and_notes_are_translated_and_other_files_kept() -> None:
    header = f'<w:hdr xmlns:w="{W}"><w:p>{text("a dog")}</w:p></w:hdr>'
    second = header.replace("hdr", "document")
    others = {"word/header1.xml": header, "word/styles.xml": "<a dog='x'/>", "word/document2.xml": second}
    found, _ = translate_content(text_translator(), docx("<w:p/>", **others), "a.docx")
    assert "une chien" in unpacked(found, "word/header1.xml")
    assert "une chien" in unpacked(found, "word/document2.xml")
    assert unpacked(found, "word/styles.xml") == "<a dog='x'/>"
    assert "urn:unused" in unpacked(found, "word/document.xml")


def test_a_format_that_is_not_read_is_named() -> None:
    strict = '<w:document xmlns:w="http://purl.oclc.org/ooxml/wordprocessingml/main"><w:body/></w:document>'
    with pytest.raises(DataError, match="not as Strict Open XML"):
        read(packed({"word/document.xml": strict}), "a.docx")


class TestComputedFields:
    def test_they_move_as_a_whole_and_are_not_translated(self) -> None:
        date = field("DATE \\@ x", text("dog"))
        found = translated(f"<w:p>{text('the red ')}{date}{text(' runs.')}</w:p>", reversing())
        assert date in found
        assert shown(found) == ". runs dog red the"

    def test_the_model_reads_their_result(self) -> None:
        body = f"<w:p>{text('the dog ')}{field('REF _Ref1', text('12'))}{text(' runs')}</w:p>"
        assert read(docx(body), "a.docx") == ["the dog 12 runs"]
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

    def test_field_characters_within_a_run_of_text_are_found(self) -> None:
        parts = re.sub("</?w:r>", "", field("PAGE", text("7")))
        found = translated(f"<w:p>{run(f'<w:t>the dog </w:t>{parts}<w:t> runs</w:t>')}</w:p>")
        assert found == f"<w:p>{text('le chien ')}{field('PAGE', text('7'))}{text(' court')}</w:p>"

    def test_fields_in_fields_are_part_of_them(self) -> None:
        inner = field("MERGEFIELD x", text("the"))
        condition = run("<w:instrText> IF </w:instrText>") + inner
        whole = f"{field_char('begin')}{condition}{field_char('separate')}{text('a')}{field_char('end')}"
        found = translated(f"<w:p>{text('red dog ')}{whole}{text(' car')}</w:p>", reversing())
        assert whole in found
        assert shown(found.replace(inner, "")) == "car a dog red"


class TestLinks:
    def test_their_text_is_translated_between_their_field_characters(self) -> None:
        link = field('HYPERLINK "http://x.y"', "{}")
        found = translated(f"<w:p>{text('a ')}{link.format(text('red'))}{text(' car runs')}</w:p>")
        assert found == f"<w:p>{text('une voiture ')}{link.format(text('rouge'))}{text(' court')}</w:p>"

    def test_a_table_of_contents_is_translated(self) -> None:
        number = field("PAGEREF _Toc1", text("3"))
        entry = field('HYPERLINK \\\\l "_Toc1"', "{}" + run("<w:tab/>") + number)
        link = '<w:hyperlink w:anchor="_Toc2">{}' + run("<w:tab/>") + number + "</w:hyperlink>"
        body = f"<w:p>{head('TOC')}{entry}</w:p><w:p>{link}</w:p><w:p>{field_char('end')}</w:p>"
        found = translated(body.format(text("the dog"), text("a red car")))
        assert found == body.format(text("le chien"), text("une voiture rouge"))


def field_chars_of(document: str) -> list[str]:
    """Kinds of field characters, in order, with the instructions of those that begin."""
    root = etree.fromstring(f'<w:body xmlns:w="{W}">{document}</w:body>')
    parts = root.iter(f"{NAMESPACE}fldChar", f"{NAMESPACE}instrText")
    return [part.get(f"{NAMESPACE}fldCharType") or (part.text or "").strip() for part in parts]


def assert_whole(document: str) -> None:
    """Check that fields are balanced, with instructions before results, and that no range ends before it begins."""
    stack: list[str] = []
    for kind in field_chars_of(document):
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
    f'<w:p>{text("the dog ")}<w:bookmarkStart w:id="0"/>{text("the dog ")}{field_char("begin")}'
    f'{run("<w:instrText> PAGE </w:instrText>")}<w:bookmarkEnd w:id="0"/></w:p>'
    f"<w:p>{field_char('separate')}{field_char('end')}</w:p>"
)


@examples(20, 100)
@example(body=DIVIDED)
@given(body=documents())
def test_documents_stay_whole_in_any_order_of_words(body: str) -> None:
    assert_whole(body)
    found = translated(body, reversing())
    assert_whole(found)
    assert sorted(field_chars_of(found)) == sorted(field_chars_of(body))
    for name in ("bookmarkStart", "bookmarkEnd", "commentRangeStart", "commentRangeEnd"):
        assert found.count(f"<w:{name}") == body.count(f"<w:{name}")
    lost = Counter(shown(body).replace(" ", "")) - Counter(shown(found).replace(" ", ""))
    assert not lost  # elements that get no word of the translation keep those of the source


class TestRanges:
    def test_each_end_is_placed_by_itself(self) -> None:
        start, end = '<w:commentRangeStart w:id="1"/>', '<w:commentRangeEnd w:id="1"/>'
        found = translated(f"<w:p>{text('the dog ')}{start}{text('runs')}{end}{text(' runs')}</w:p>")
        assert found == f"<w:p>{text('le chien ')}{start}{text('court')}{end}{text(' court')}</w:p>"


def open_document(body: str, translator: TextTranslator | None = None) -> str:
    content = packed({"mimetype": "application/x", "content.xml": f"<office:x {ODT}>{body}</office:x>"})
    found = unpacked(translate_content(translator or text_translator(), content, "a.odt")[0], "content.xml")
    return re.sub("^.*?<office:x [^<>]*>|</office:x>$", "", found, flags=re.DOTALL)


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
        found = open_document(f"<text:p>the {start}red <text:span>dog{end} runs</text:span> car</text:p>", reversing())
        assert 0 < found.index(start) < found.index(end)
        assert shown(found).split() == ["car", "runs", "dog", "red", "the"]

    def test_fields_are_read_and_not_translated(self) -> None:
        number = '<text:page-number text:select-page="current">12</text:page-number>'
        found = open_document(f"<text:p>dog {number} car</text:p>", reversing())
        assert found == f"<text:p>car {number} dog</text:p>"
        body = "<text:p>the <text:span>red<!-- dog --><text:script>car</text:script></text:span> dog</text:p>"
        assert read(packed({"content.xml": f"<office:x {ODT}>{body}</office:x>"}), "a.odt") == ["the red dog"]

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (
                '<text:h>a dog</text:h><text:p>a <text:span text:style-name="B">red</text:span> car<text:line-break/>'
                "<text:note><text:note-body><text:p>a dog</text:p></text:note-body></text:note>.</text:p>",
                '<text:h>une chien</text:h><text:p>une voiture <text:span text:style-name="B">rouge</text:span>'
                "<text:line-break/><text:note><text:note-body><text:p>une chien</text:p></text:note-body></text:note>"
                ".</text:p>",
            ),
            (  # elements stand for spaces, and line ends are spaces
                "<text:p>a<text:s/>dog\n  runs. <text:s/>the<text:s/>\n</text:p>",
                "<text:p>une chien court. <text:s/>le<text:s/> </text:p>",
            ),
        ],
    )
    def test_paragraphs(self, body: str, expected: str) -> None:
        assert open_document(body) == expected


@pytest.mark.parametrize("suffix", [".docx", ".odt"])
def test_office_documents_are_files(small_bundle: Path, tmp_path: Path, suffix: str) -> None:
    source, target = tmp_path / f"report{suffix}", tmp_path / f"out{suffix}"
    source.write_bytes(docx("<w:p><w:r><w:t>The old dog runs.</w:t></w:r></w:p>"))
    for named in ((source,), ("--input", source)):
        message = error("translate", small_bundle, *named)
        assert message == f"Name the translation of `{source}` with --output; it must end in {suffix}."
        assert "is an input file" in error("translate", small_bundle, *named, "-o", source)
        assert "must end in" in error("translate", small_bundle, *named, "-o", tmp_path / "out.txt")
        if suffix == ".docx":
            result = command("translate", small_bundle, *named, "-o", target)
            assert (result.exit_code, result.stdout) == (0, "")
            sentence = command("translate", small_bundle, "The old dog runs.").stdout.strip()
            assert words_of(target.read_bytes()) == f"<w:p><w:r><w:t>{sentence}</w:t></w:r></w:p>"
        else:
            assert "lacks `content.xml`" in error("translate", small_bundle, *named, "-o", target)
            assert not target.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out{suffix}"] * target.exists() + [source.name]
