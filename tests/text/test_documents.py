"""Documents keep everything but their words."""

from __future__ import annotations

import gzip
import html
import io
import re
import time
import unicodedata
import warnings
import zipfile
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from edgeformer_runtime.errors import ConfigError, DataError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator
from edgeformer_text.block import Block, read
from edgeformer_text.documents import SUFFIXES, translate_document
from edgeformer_text.documents.document import Document
from edgeformer_text.documents.files import read_document, translate_content, translated_once
from edgeformer_text.documents.markdown import markdown_parts
from edgeformer_text.documents.subtitles import _wrapped
from edgeformer_text.plan import Plan
from edgeformer_text.text_translator import TextTranslator
from tests.amounts import examples
from tests.commands import error, run
from tests.text.attended import join, read_of, rewritten, text_translator

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def translated(name: str, content: str | bytes) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return translate_content(text_translator(), content, name)[0]


def packed(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in files.items():
            package.writestr(name, content)
    return stream.getvalue()


def unpacked(content: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        return package.read(name).decode()


def docx(body: str, **others: str) -> bytes:
    document = f'<w:document xmlns:w="{W}" xmlns:w14="urn:unused"><w:body>{body}</w:body></w:document>'
    return packed({"[Content_Types].xml": "<Types/>", "word/document.xml": document, **others})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "\ufeffa red car.\r\n\r\n- a dog\r\n", "\ufeffune voiture rouge.\r\n\r\n- une chien\r\n"),
        ("a.html", '<html lang="en"><p lang="en">a dog', '<html lang="en"><p lang="en">une chien'),
        ("a.HTML", "<p class=x>a <b>red</b> car</p>", "<p class=x>une voiture <b>rouge</b></p>"),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\na <i>red</i>\ncar & a dog\n\n"
            "2\n00:00:03,000 --> 00:00:04,000\n- a dog.\n- a car.\n",
            "1\n00:00:01,000 --> 00:00:02,000\nune voiture <i>rouge</i>\n& une chien\n\n"
            "2\n00:00:03,000 --> 00:00:04,000\n- une chien.\n- une voiture.\n",
        ),
        (
            "a.vtt",
            "WEBVTT\n\nNOTE a dog\n\nintro\n00:01.000 --> 00:02.000 align:start\n<v Bob>a dog &amp; a car\n",
            "WEBVTT\n\nNOTE a dog\n\nintro\n00:01.000 --> 00:02.000 align:start\n<v Bob>une chien &amp; une voiture\n",
        ),
        (
            "a.vtt",
            "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Bob>a <c.loud>red</c> car\n",
            "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Bob>une voiture <c.loud>rouge</c>\n",
        ),
        (
            "a.vtt",
            "WEBVTT\n\n00:01.000 --> 00:02.000\na dog <00:01.500>\n",
            "WEBVTT\n\n00:01.000 --> 00:02.000\nune chien <00:01.500>\n",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>a dog</i>\n",
            "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>une chien</i>\n",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\na dog\n2\n00:00:03,000 --> 00:00:04,000\na red\ncar\n"
            "00:00:05,000 --> 00:00:06,000\nthe dog\n",
            "1\n00:00:01,000 --> 00:00:02,000\nune chien\n2\n00:00:03,000 --> 00:00:04,000\nune voiture\nrouge\n"
            "00:00:05,000 --> 00:00:06,000\nle chien\n",
        ),
        (
            "a.srt",
            "1\n00:00:01,000 --> 00:00:02,000\nthe red car runs\nthe dog runs\nthe dog\n",
            "1\n00:00:01,000 --> 00:00:02,000\nle voiture rouge\ncourt le chien\ncourt le chien\n",
        ),
    ],
)
def test_text_formats(name: str, content: str, expected: str) -> None:
    assert translated(name, content).decode() == expected


SRT = "7\n00:00:01,000 --> 00:00:02,000\n{}\n\n9\n00:00:03,000 --> 00:00:04,000\nthe dog\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog\n\na red car", "une chien\n\nune voiture rouge"),
        ("a dog\n \n\na red\ncar\n\n12", "une chien\n \n\nune voiture\nrouge\n\n12"),
        ("\na dog", "\nune chien"),
        ("", ""),
        ("- a red\ncar\n- a dog", "- une voiture\nrouge\n- une chien"),
        ("a red\n- car", "une rouge\n- voiture"),
        ("–a red\n—car", "–une rouge\n—voiture"),
        ("<i>- a red</i>\n<i>- car</i>", "<i>- une rouge</i>\n<i>- voiture</i>"),
        ("{\\an8}- a red\n- car", "{\\an8}- une rouge\n- voiture"),
        ("TOM: a red\nMRS. DOG: car", "TOM: une rouge\nMRS. DOG: voiture"),
        ("a dog: the\nred car", "une chien : le\nvoiture rouge"),
        ("TOM: a dog", "TOM: une chien"),
        (">> TOM 2 (V.O.): a red\n>> car", ">> TOM 2 (V.O.): une rouge\n>> voiture"),
        ("[a dog runs]\n(the dog) a car", "[une chien court]\n(le chien) une voiture"),
        ("TOM: (a dog) the [a car] dog", "TOM: (une chien) le [une voiture] chien"),
        ("- a dog. - a car!", "- une chien. - une voiture!"),
        ("<i>[a\ndog] the</i>\n{\\an8}a car", "<i>[une\nchien] le</i>\n{\\an8}une voiture"),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_blocks_and_speakers_of_a_cue_are_texts_of_their_own(text: str, expected: str, line_end: str) -> None:
    found = translated("a.srt", SRT.format(text).replace("\n", line_end)).decode()
    assert found == SRT.replace("the dog", "le chien").format(expected).replace("\n", line_end)


@pytest.mark.parametrize("suffix", [".srt", ".vtt"])
def test_arrows_in_the_text_of_a_cue_are_text(suffix: str) -> None:
    for line in ("the dog --> the car", "--> the dog", "the dog -->", "the dog --> 00:01.000", "the\ndog --> the"):
        content = "WEBVTT\n\n" * (suffix == ".vtt") + SRT.replace(",", ".").format(line)
        found = translated(f"a{suffix}", content).decode()
        expected = content.replace("the", "le").replace("dog", "chien").replace("car", "voiture")
        assert "".join(html.unescape(found).split()) == "".join(expected.split())


@pytest.mark.parametrize(
    "text",
    ["今天天气很好，我们去公园吧。", "明日はサーバーを見に行こう", "วันนี้อากาศดีมาก", "iPhone很好，Tom也很好", "ក្រុងភ្នំពេញ"],
)
def test_cues_in_scripts_without_spaces_keep_their_number_of_lines(text: str) -> None:
    for count, tagged in product(range(2, 5), (text, f"<i>{text}</i>", f"{text[:3]}<b>{text[3:]}</b>")):
        lines = _wrapped(tagged, count, "\n").split("\n")
        assert len(lines) == count
        assert "".join(lines) == tagged
        assert not any(line[:1] in "，。、" or unicodedata.category(line[0])[0] == "M" for line in lines)


@pytest.mark.parametrize("kind", [".txt", ".html", ".md", ".srt", ".vtt", ".po"])
def test_compressed_documents_are_refused(kind: str) -> None:
    with pytest.raises(DataError, match="is compressed; unpack it with gunzip"):
        translated(f"a{kind}", gzip.compress(b"a dog"))


def test_other_blocks_of_webvtt_are_copied() -> None:
    others = "\n\nNOTE\na dog\n\nSTYLE\n::cue { }\n\n{}\n00:02.000 --> 00:03.000 line:0\n"
    content = f"WEBVTT a dog\nKind: dog{others}a dog{others}- a dog\n- a car\n\nthe dog\n"
    found = translated("a.vtt", content).decode()
    assert found == f"WEBVTT a dog\nKind: dog{others}une chien{others}- une chien\n- une voiture\n\nthe dog\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "a dog | a car\n--- | ---\na car | a dog\n\na | dog\n",
            "une chien | une voiture\n--- | ---\nune voiture | une chien\n\nune | chien\n",
        ),
        ("a dog\\\na car", "une chien\\\nune voiture"),
        ("a dog  \na car", "une chien  \nune voiture"),
        ("a dog<br>a car", "une chien<br>une voiture"),
        ("a dog<sup>[1]</sup> H<sub>2</sub>", "une chien<sup>[1]</sup> H<sub>2</sub>"),
        ("---\ntitle: a dog\n---\n# a dog\n", "---\ntitle: a dog\n---\n# une chien\n"),
        ('a **red** car and [a dog](x_(b) "t")\n', 'une voiture **rouge** and [une chien](x_(b) "t")\n'),
        ("2 * 3 snake_case_dog\n", "2 * 3 snake_case_dog\n"),
        ("# the dog\nruns\n", "# le chien\ncourt\n"),
        ("- a dog\n\n    the red car\n\n        the dog\n", "- une chien\n\n    le voiture rouge\n\n        the dog\n"),
        ("- a\n    - the red car\n      runs\n", "- une\n    - le voiture rouge court\n"),
        (
            "1. a dog\n\n   ```\n   the dog\n   ```\n\n   a dog\n",
            "1. une chien\n\n   ```\n   the dog\n   ```\n\n   une chien\n",
        ),
        ("- a dog\n\na dog\n\n    the dog\n", "- une chien\n\nune chien\n\n    the dog\n"),
        ("# a dog\n    the dog\n", "# une chien\n    the dog\n"),
        ("a dog\n\n\tthe dog\n", "une chien\n\n\tthe dog\n"),
        ("a dog\n- the\n\n    a dog\n", "une chien\n- le\n\n    une chien\n"),
        ("a <b>red</b> car<HR>a <I>dog</I>\n", "une voiture <b>rouge</b><HR>une <I>chien</I>\n"),
        ("-\ta dog\n\n    a dog\n", "-\tune chien\n\n    une chien\n"),
        ("- a\n    - the dog\n\n      a dog\n", "- une\n    - le chien\n\n      une chien\n"),
        ("- a\n    - the\n\n  a dog\n\n      the dog\n", "- une\n    - le\n\n  une chien\n\n      the dog\n"),
        ("- ```js\n  the dog\n  ```\n\na dog\n", "- ```js\n  the dog\n  ```\n\nune chien\n"),
        ("> ```\n> the dog\n> ```\n> a dog\n", "> ```\n> the dog\n> ```\n> une chien\n"),
        ("> ```\n> the dog\n\na dog\n", "> ```\n> the dog\n\nune chien\n"),
        ("```the dog``` runs\n\na dog\n", "```the dog``` court\n\nune chien\n"),
        ("````\n```\nthe dog\n````\na dog\n", "````\n```\nthe dog\n````\nune chien\n"),
        ("<pre>\nthe dog\n\nthe\n</pre>\n\na dog\n", "<pre>\nthe dog\n\nthe\n</pre>\n\nune chien\n"),
        ("<pre>the dog</pre>\na dog\n", "<pre>the dog</pre>\nune chien\n"),
        ("<!--\nthe dog\n\nthe\n-->\na dog\n", "<!--\nthe dog\n\nthe\n-->\nune chien\n"),
        ("<!-- the --> a dog\n", "<!-- the --> une chien\n"),
        ('+++\ntitle = "the dog"\n+++\n\na dog\n', '+++\ntitle = "the dog"\n+++\n\nune chien\n'),
        ("> [!NOTE]\n> a dog\n", "> [!NOTE]\n> une chien\n"),
        ("::: warning\na dog\n:::\n", "::: warning\nune chien\n:::\n"),
        ('!!! note "the"\n    a dog\n\n    a dog\n', '!!! note "the"\n    une chien\n\n    une chien\n'),
        ("[^1]: a dog\n\n    a dog\n", "[^1]: une chien\n\n    une chien\n"),
        ("the\n: a dog\n", "le\n: une chien\n"),
        ("| a \\| dog |\n|---|\n", "| une \\| chien |\n|---|\n"),
        ("| a *red* car | the `a` dog |\n|---|---|\n", "| une voiture *rouge* | le `a` chien |\n|---|---|\n"),
        ("the \\*dog\\* &amp; a &lt;car&gt;.", "le \\* chien \\* &amp; une &lt; voiture &gt;."),
        ("a [dog][] runs\n\n[Dog]: x\n", "une [chien][dog] court\n\n[Dog]: x\n"),
        ('![a dog](a%20dog.png "a red car")\n', '![une chien](a%20dog.png "une voiture rouge")\n'),
        ("a ![dog](dog_(1).png) red car\n", "une ![chien](dog_(1).png) voiture rouge\n"),
        ("![a **red** car](<a dog.png> 'the dog')\n", "![une voiture **rouge**](<a dog.png> 'le chien')\n"),
        ("[![a dog](x.png)](dog 'a car')\n", "[![une chien](x.png)](dog 'une voiture')\n"),
        ("![a dog][dog] ![dog][] ![dog]\n\n[dog]: x\n", "![une chien][dog] ![chien][dog] ![chien][dog]\n\n[dog]: x\n"),
        ("![dog][] ![dog] ![](dog) ![12](dog)\n", "![chien][] ![chien] ![](dog) ![12](dog)\n"),
        ("[Note]: a dog runs.\n", "[ Note ] : une chien court.\n"),
        ("## the dog ##\n", "## le chien ##\n"),
        ("> the\n> dog\n>\n> a\n> car\n", "> le chien\n>\n> une voiture\n"),
        ("the year\n1984. the dog\n", "le year 1984. le chien\n"),
        ("> a dog  \n> the car\n", "> une chien  \n> le voiture\n"),
        ("10) a dog\n\n    the dog\n", "10) une chien\n\n    le chien\n"),
        ("<div>\na dog\n</div>\n", "<div>\nune chien\n</div>\n"),
        ("a [dog] runs [car]\n\n[dog]: x\n", "une [chien][dog] court [ voiture ]\n\n[dog]: x\n"),
    ],
)
def test_constructs_of_markdown_stay(content: str, expected: str) -> None:
    assert translated("a.md", content).decode() == expected


CONTAINERS = {
    "": "",
    "> ": "> ",
    "- ": "  ",
    "12. ": "    ",
    "> > ": "> > ",
    "- > ": "  > ",
    "> - ": ">   ",
    "> 1) ": ">    ",
    "[^1]: ": "    ",
    "!!! note\n    ": "    ",
    "- - * ": "      ",
    ">": ">",
    "- [ ] ": "  ",
}
"""What begins a paragraph, and its further lines."""


@pytest.mark.parametrize("begin", CONTAINERS)
def test_a_paragraph_of_markdown_is_one_block_wherever_it_is_wrapped(begin: str) -> None:
    words = re.split(" ", "the year was 1984. a dog *runs* [to](x) `a b` car, 5) and + so [Note]: on # - it")
    for width, end in product(range(1, len(words)), ("\n", "\r\n")):
        lines = [" ".join(words[at : at + width]) for at in range(0, len(words), width)]
        if any(re.match(r"[+#-](\s|$)|1[.)]", line) for line in lines):
            continue  # these begin a block
        content = begin + f"{end}{CONTAINERS[begin]}".join(lines) + end
        blocks = [part for part in markdown_parts(content) if isinstance(part, Block)]
        (reading,) = (read(block, (0, len(block.text)), block.items).text for block in blocks)
        assert reading == "the year was 1984. a dog runs to `a b` car, 5) and + so [Note]: on # - it"


@examples(15, 100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*CONTAINERS, "# ", "```\n", "    ", "<div>\n", "| ", "***\n", "[x]: y\n", "\t", "1984. "]),
            st.sampled_from(
                ["a dog", "the dog\nruns", "*a* dog\n", "the `dog`\n\n", "a | dog", "\n", "[Note]: this is it"]
            ),
        ),
        max_size=6,
    ).map(lambda parts: "".join(begin + text for begin, text in parts))
)
def test_a_translation_of_markdown_has_the_blocks_of_its_source(content: str) -> None:
    def blocks(text: str) -> list[tuple[str, str]]:
        skipped = ("inline", "paragraph_open", "paragraph_close")
        return [
            (token.type, token.markup)
            for token in MarkdownIt("commonmark").enable("table").parse(text)
            if token.type not in skipped
        ]

    assert blocks(translated("a.md", content).decode()) == blocks(content)


def test_quotes_and_brackets_do_not_end_what_is_translated() -> None:
    (part,) = (part for part in markdown_parts('![a](x "b")') if isinstance(part, Block))
    text, title = (part for part in part.tags[0].attributes if isinstance(part, Block))
    assert (text.escape("[x]"), title.escape('"x"')) == ("\\[x\\]", '\\"x\\"')


@examples(15, 100)
@given(
    text=st.one_of(
        st.text(max_size=80),
        st.lists(st.sampled_from([*"*_`[]()<>|#-\\ \n!x~", "](u)", "a dog", "**", "1. ", "```"]), max_size=25).map(
            "".join
        ),
    )
)
def test_markdown_parts_are_the_whole_document(text: str) -> None:
    assert rewritten(markdown_parts(text)) == text
    translated("a.md", text)


EMPTY = f'<w:document xmlns:w="{W}"/>'
SIZES = {
    "packages.MAX_DOCUMENT_BYTES": ("a.docx", packed({"word/document.xml": EMPTY, "x": "12"}), len(EMPTY) + 2),
    "packages.MAX_DOCUMENT_DEPTH": ("a.docx", docx("<w:p>" * 3 + "</w:p>" * 3), 3),
    "packages.MAX_DOCUMENT_ELEMENTS": ("a.docx", docx('<w:p a="1"><!-- c --><?x y?></w:p>'), 8),
    "packages.MAX_DOCUMENT_FILES": ("a.docx", docx("<w:p/>", x="", y=""), 4),
    "files.MAX_DOCUMENT_BYTES": ("a.txt", "é".encode() * 5, 10),
    "files.MAX_DOCUMENT_ELEMENTS": ("a.md", b"<b>a</b>[c](d)\n\n", 5),
}
"""Documents, and how large they are by each limit."""


@pytest.mark.parametrize("limit", SIZES)
def test_a_document_may_be_as_large_as_its_limit(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, content, size = SIZES[limit]
    monkeypatch.setattr(f"edgeformer_text.documents.{limit}", size)
    read_document(content, name)
    monkeypatch.setattr(f"edgeformer_text.documents.{limit}", size - 1)
    with pytest.raises(DataError, match=f"`{name}` .*{size - 1}"):
        read_document(content, name)


class TestHostileFiles:
    @pytest.mark.parametrize(
        ("suffix", "element"),
        [("html", b"<b>"), ("HTM", b"</b"), ("md", b"[a](b) "), ("markdown", b"- a\n"), ("po", b"\n"), ("vtt", b"a\n")],
    )
    def test_too_many_tags_links_or_lines_are_refused_before_they_are_read(self, suffix: str, element: bytes) -> None:
        began = time.process_time()
        with pytest.raises(DataError, match=r"has more than 1,000,000 tags, links or lines; split it\."):
            read_document(element * 1_000_001, f"a.{suffix}")
        assert time.process_time() - began < 1
        assert read_document(element * 10, f"a.{suffix}")

    @pytest.mark.parametrize("suffix", ["docx", "odt"])
    @pytest.mark.parametrize(
        "declared",
        [
            "[" + "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x"}">' for n in range(10)) + "]",
            '[<!ENTITY e9 SYSTEM "{file}">]',
            '[<!ENTITY e9 "x"><!ENTITY % e SYSTEM "{file}"> %e;]',
            'SYSTEM "{file}" [<!ENTITY e9 "x">]',
        ],
        ids=["nested", "of a file", "of a file of them", "of a file with the type"],
    )
    def test_entities_are_refused_and_not_resolved(self, tmp_path: Path, suffix: str, declared: str) -> None:
        file = tmp_path / "damaged.dtd"
        file.write_text("<", "utf-8")  # which would be the error if it were read
        xml = f"<?xml version='1.0'?><!DOCTYPE x {declared.replace('{file}', file.as_uri())}><x>&e9;</x>"
        with pytest.raises(DataError, match=r"declares a document type|entity amplification"):
            translated(f"a.{suffix}", packed({"word/document.xml": xml, "content.xml": xml}))

    @given(content=st.binary(max_size=60), suffix=st.sampled_from(SUFFIXES), place=st.integers(0, 400))
    def test_any_content_is_translated_or_refused(self, content: bytes, suffix: str, place: int) -> None:
        good = docx("<w:p><w:r><w:t>a dog</w:t></w:r></w:p>")
        damaged = good[:place] + content + good[place + len(content) :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of zipfile, about names that are there twice
            for data in (content, damaged):
                with suppress(DataError):
                    translated(f"a{suffix}", data)

    def test_a_catalog_that_cannot_be_read_names_the_line(self) -> None:
        with pytest.raises(DataError, match=r"Line 2 of `a\.po` is not a gettext message"):
            translated("a.po", 'msgid "x"\nmsgstr "y\n')


TEXTS = {
    ".txt": "The old dog runs.\r\n\r\n- The sea.\r\n",
    ".html": '<html lang="en"><p title="The sea.">The <b>old dog</b> runs.</p>\r\n</html>\n',
    ".md": "# The sea\n\nThe *old dog* runs.\n\n    code\n",
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\nThe old dog runs.\n",
    ".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nThe old dog runs.\n",
    ".po": 'msgid "The old dog runs."\nmsgstr ""\n',
}


@pytest.mark.parametrize("suffix", [".txt", ".html", ".po"])
def test_the_suffix_decides_however_a_file_is_named(
    small_bundle: Path, translator: Translator, tmp_path: Path, suffix: str
) -> None:
    source, target = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    source.write_bytes(TEXTS[suffix].encode())
    content, _ = translate_content(TextTranslator(translator), source.read_bytes(), str(source))
    assert content.decode() != TEXTS[suffix]
    for named in ((source,), ("--input", source)):
        assert run("translate", small_bundle, *named, "-o", target).exit_code == 0
        assert target.read_bytes() == content
        shown = content.decode().replace("\r\n", "\n") if suffix == ".txt" else content.decode()
        assert run("translate", small_bundle, *named).stdout_bytes.decode() == shown
    if suffix != ".txt":
        other = tmp_path / "out.txt"
        message = error("translate", small_bundle, source, "-o", other)
        assert message == f"`{other}` must end in {suffix}, since the translation is of the same kind."
    if suffix not in (".txt", ".html"):
        assert "--json is for text" in error("translate", small_bundle, source, "--json", code=2)


@pytest.mark.parametrize("suffix", TEXTS)
def test_a_translation_can_be_translated_to_a_further_language(suffix: str) -> None:
    texts, name = text_translator(), f"a{suffix}"
    words = {"The old dog runs.": "Le vieux chien court.", "The sea.": "La mer.", "The sea": "La mer"}

    def plans(document: Document) -> list[Plan]:
        return [texts.plan(piece) for piece in document.pieces]

    document = read_document(TEXTS[suffix].encode(), name)
    once = [join(plan, words.__getitem__).text for plan in plans(document)]
    expected = [[words[read] for read in read_of(plan)] for plan in plans(document)]
    assert [read_of(plan) for plan in plans(translated_once(document, once, "fr", name))] == expected


@pytest.mark.parametrize("options", [None, DecodeOptions(beam_size=3)])
def test_the_options_of_a_document_are_those_given_or_those_of_texts(
    tmp_path: Path, options: DecodeOptions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, used = text_translator(), list[DecodeOptions]()

    def translate(sentences: list[str], options: DecodeOptions, **limits: object) -> list[Translation]:
        used.append(options)
        return []

    monkeypatch.setattr(texts.translator, "translate", translate)
    (tmp_path / "a.txt").write_text("42", "utf-8")
    translate_document(texts, tmp_path / "a.txt", tmp_path / "b.txt", options)
    assert used == [options or texts.decoding()]


def test_the_name_of_a_document_is_not_translated(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my dog.txt").write_text("The old dog runs.", "utf-8")
    assert (
        run("translate", small_bundle, "my dog.txt").stdout
        == run("translate", small_bundle, "--input", "my dog.txt").stdout
    )
    for name, *others in (("no/where at all.docx",), ("./x.MD", "dog"), (tmp_path / "no.srt",)):
        message = error("translate", small_bundle, name, *others)
        assert message == f"File `{name}` does not exist; to translate its name, give --format text."
    for mode in ("--format=text", "--format=html", "--lines"):
        assert run("translate", small_bundle, mode, "nowhere.txt").exit_code == 0
    (tmp_path / "my dog.pdf").touch()
    assert "another kind than .docx, " in error("translate", small_bundle, "my dog.pdf")
    assert "which must be the only TEXT" in error("translate", small_bundle, "my dog.txt", "dog")
    assert "file" in error("translate", small_bundle, "--input", "nowhere.txt")
    for text in ("Read my cat.txt", "and/or", "red " * 100 + ".txt", ".txt \0.txt"):
        assert run("translate", small_bundle, text).exit_code == 0


def test_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.txt"):
        translate_document(text_translator(), tmp_path / "a.txt", tmp_path / "a.docx")
    with pytest.raises(ConfigError, match="is not a document that can be translated"):
        translated("a.pdf", b"")
