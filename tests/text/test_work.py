"""What is done for a text grows with its size, not with the square of it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import edgeformer_text
from edgeformer_runtime.errors import CanceledError, DataError, OptionError
from edgeformer_runtime.search.requests import Stop
from edgeformer_text import protected
from edgeformer_text.documents.files import read_document, translate_content
from edgeformer_text.glossary import Glossary
from edgeformer_text.segmentation import SentenceLimit, fitting_spans, sentence_spans
from tests.text.attended import attended, join, text_translator
from tests.text.test_documents import docx

ROOM = str(edgeformer_text.__path__[0])
GROWTH = 4
MAX_GROWTH = 6
"""The square would be 16 times the work, and 4 is what a text of 4 times the size needs."""


def lines_run(function: Callable[[], object]) -> int:
    """Count the lines of Python that a function runs in the package, repetitions included."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def joined(text: str, **options: Any) -> int:
    translator = text_translator(**options)
    translator._limit = 10_000  # so that it is one sentence
    plan = translator.split(text, format="html")
    assert len(plan.sentences) == 1
    translations = translator.translator.translate(plan.sentences)
    return lines_run(lambda: plan.join(translations, translator.translator.translate))


@pytest.mark.parametrize(
    "make",
    [
        lambda count: " ".join(f"<b>w{index}</b>" for index in range(count)) + ".",
        lambda count: " ".join(f"w{index} <img src=x>" for index in range(count)) + " end.",
        lambda count: "the dog " + "<b></b>" * count + " runs.",
        lambda count: "the " + "<b>" * count + "dog" + "</b>" * count + " runs.",
        lambda count: "the dog, " + "<i>,</i> " * count + " runs.",
    ],
    ids=["elements", "images", "nothing", "inside each other", "punctuation"],
)
@pytest.mark.parametrize("word_details", [False, True])
def test_joining_is_linear_in_elements(make: Callable[[int], str], word_details: bool) -> None:
    small, large = (joined(make(count), word_details=word_details) for count in (60, 60 * GROWTH))
    assert large < MAX_GROWTH * small


RUN = "<w:r><w:t>7 </w:t></w:r>"
FIELD = "".join(f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>{RUN}' for kind in ("begin", "separate", "end"))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.docx", lambda count: docx(f"<w:p>{RUN * count}</w:p>")),
        ("a.docx", lambda count: docx(f"<w:p>{RUN}</w:p>" * count)),
        ("a.docx", lambda count: docx(f"<w:p>{FIELD * count}</w:p>")),
        ("a.docx", lambda count: docx(f"<w:p>{RUN}" * 10 + "<w:r/>" * count + "</w:p>" * 10)),
        ("a.docx", lambda count: docx("<w:p>" + '<w:bookmarkStart w:id="1"/>' * count + RUN + "</w:p>")),
        ("a.srt", lambda count: b"1\n00:00:01,000 --> 00:00:02,000\n" + b"7 <b>7</b> " * count + b"\n7\n7\n"),
        ("a.vtt", lambda count: b"WEBVTT\n\n" + b"00:01.000 --> 00:02.000\n7\n\n" * count),
        ("a.po", lambda count: b'msgid "7"\nmsgstr ""\n\n' * count),
        ("a.html", lambda count: b"<p>7 <b>7</b>" * count),
        ("a.html", lambda count: b"<i>" * 4 * count + b"<li>7" * count),
        ("a.md", lambda count: b"7 *7* [7](x) `7`\n" * count),
        ("a.txt", lambda count: b"7. " * count),
    ],
)
def test_documents_take_work_of_their_size(name: str, make: Callable[[int], bytes]) -> None:
    translator = text_translator()
    small, large = (
        lines_run(lambda count=count: translate_content(translator, make(count), name))  # type: ignore[misc]
        for count in (50, 50 * GROWTH)
    )
    assert large < MAX_GROWTH * small


@pytest.mark.parametrize("text", ["你好，", "，，，", "a, ", "a,b", "ab", "，", "a\u0301\u0301"])
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_splitting_ends_with_every_character_once(text: str, limit: int) -> None:
    spans = fitting_spans(text, [(0, len(text))], [], limit, lambda texts: [3 * len(each) for each in texts])
    assert "".join(text[start:end] for start, end in spans).replace(" ", "") == text.replace(" ", "")


def test_splitting_is_linear() -> None:
    def work(count: int) -> int:
        text = "word, " * count
        return lines_run(
            lambda: fitting_spans(text, sentence_spans(text), [], 4, lambda texts: [len(each) for each in texts])
        )

    assert work(500 * GROWTH) < MAX_GROWTH * work(500)


HOSTILE = {
    ".html": [
        *('<a "' * 2_000, "<" * 4_000, "<b>" * 4_000, "<!--" * 2_000, "&" * 4_000, "<b a='x" * 1_000),
        "<li><ul>" + "<b>" * 2_000 + "<li></li>" * 1_000,
    ],
    ".po": [
        f'msgid "{text}"\nmsgstr ""\n'
        for text in ("a" * 50_000 + " _b", "_b " + "." * 50_000 + "1", "_a" * 20_000, "a&aa" * 20_000)
    ],
    ".srt": ["0 --> 1\n" + "a dog\n" * 1000],
    ".md": [f"{' ' * 50_000}a\n"],
    ".txt": [
        *(text * 1_500 for text in ("{n, plural, one {", "{", "{n, plural, one {{{{{{{{{", "{}", "{n,plural,a{}")),
    ],
}
"""Documents by their kind on which a wrong pattern takes long."""
PIECES = ["a", "`", "a`b``", "![", "[a", "](", "*a", "<!--", "{", ":a", "a@", "%(", ".", "> ", " ", "| ", "- ", "\n\t"]


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_documents_take_little_time(kind: str) -> None:
    translator = text_translator()
    for text in (*HOSTILE[kind], *(piece * (2_000 // len(piece)) for piece in PIECES)):
        began = time.process_time()
        with suppress(DataError):
            read = read_document(text.encode(), f"a{kind}")
            join(translator.plan(read.pieces[0] if read.pieces else []))
        assert time.process_time() - began < 5, text[:20]


def test_many_terms_take_little_time() -> None:
    terms = {f"dog{chr(97 + n % 26)}{chr(97 + n // 26)}": f"hund{n}x" for n in range(150)}
    began = time.process_time()
    attended("\n".join(f"the {term} runs" for term in terms), format="text", glossary=Glossary(terms))
    assert time.process_time() - began < 2


ODD = st.text("ahfwtp:/.@#$%{}_-①™©中。é\u0301 1A()[]<>\n~+&", max_size=40)
PLACEHOLDER = st.sampled_from(
    ["https://a.bé", "README.md", "www.x", "a_b", "f()", "a@b.de", "{n}", "%d", "$x^2$", "🐕", "/a/b"]
)


@given(st.lists(ODD | PLACEHOLDER, max_size=6).map("".join))
def test_what_a_search_for_placeholders_passes_over_has_none(text: str) -> None:
    plain = re.compile("|".join(protected._PATTERNS))
    assert [m.span() for m in protected._PROTECTED.finditer(text) if m["kept"]] == [
        m.span() for m in plain.finditer(text)
    ]


@pytest.mark.parametrize("text", ["中。", "7. ", "a", " ", "-", "the dog ", "$a ", "\n", "{"])
def test_a_search_does_not_hold_up_other_threads_until_the_end_of_a_text(text: str) -> None:
    """Python's regular expressions let other threads run between matches only."""
    glossary = Glossary({"the cat": "le chat", "C++": "C"})
    assert glossary._pattern is not None
    for pattern in (protected._PROTECTED, glossary._pattern):
        found = [match[0] for match in pattern.finditer(text * 1000)]
        assert "".join(found) == text * 1000
        assert max(map(len, found)) <= 64


MANY = {
    "lines": lambda count: "A dog runs.\n" * count,
    "sentences of a line": lambda count: "A dog runs. " * 400 * count,
    "paragraphs": lambda count: "<p>A dog runs.</p>" * count,
    "attributes": lambda count: "<img alt='A dog runs.'> runs. " * count,
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
def test_a_text_with_too_many_sentences_is_not_split_any_further(make: Callable[[int], str]) -> None:
    checks: list[int] = []

    class Counted(SentenceLimit):
        def check(self, count: int = 0) -> None:
            checks[-1] += 1
            super().check(count)

    for count in (40, 40 * GROWTH):
        checks.append(0)
        with pytest.raises(OptionError, match="more than 10 sentences"):
            text_translator().split(make(count), format="html" if "<" in make(1) else "text", limit=Counted(10))
    assert checks[0] == checks[1]


@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
@pytest.mark.parametrize("checks", range(4))
def test_a_text_that_nobody_waits_for_is_not_split_any_further(make: Callable[[int], str], checks: int) -> None:
    asked = 0

    def is_canceled() -> bool:
        nonlocal asked
        asked += 1
        return asked > checks

    with pytest.raises(CanceledError):
        text_translator().split(
            make(40), format="html" if "<" in make(1) else "text", limit=SentenceLimit(stop=Stop(is_canceled))
        )
    assert asked == checks + 1


def test_texts_of_a_request_share_a_limit() -> None:
    limit = SentenceLimit(3)
    translator = text_translator()
    assert len(translator.split("The dog.\n7\nThe sea.", limit=limit).sentences) == 2
    translator.split("The dog.\n" + "7\n" * 10, limit=limit)
    translator.split("7", limit=limit)
    with pytest.raises(OptionError, match="more than 3 sentences"):
        translator.split("The dog.", limit=limit)
