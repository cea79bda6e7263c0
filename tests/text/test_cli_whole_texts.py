"""``edgeformer translate`` for texts of several sentences and for documents."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from edgeformer_runtime.translator import Translator
from edgeformer_text.options import TextOptions
from edgeformer_text.text_translator import TextTranslator
from tests.commands import error, run

TEXT = "The old dog runs near the sea. The green river sings."
PAGE = "<p>The <b>old dog</b> runs.</p>\r\n<p>12</p>\n"


@pytest.fixture(scope="module")
def text_translator(translator: Translator) -> TextTranslator:
    return TextTranslator(translator, TextOptions(word_details=True))


def test_every_line_may_have_several_sentences(small_bundle: Path, text_translator: TextTranslator) -> None:
    expected = [result.text for result in text_translator.translate([TEXT, "", " - dog {name}"])]
    result = run("translate", small_bundle, stdin=f"{TEXT}\n\n - dog {{name}}\n")
    assert result.stdout.split("\n") == [*expected, ""]
    assert "{name}" in expected[2]
    assert run("translate", small_bundle, TEXT).stdout == f"{expected[0]}\n"
    assert run("translate", "--lines", small_bundle, TEXT).stdout != f"{expected[0]}\n"


@pytest.mark.parametrize("mode", [(), ("--lines",), ("--format", "text")])
class TestLines:
    """Lines, whether they are texts or sentences, come in the same ways."""

    def test_they_come_from_anywhere(self, small_bundle: Path, tmp_path: Path, mode: tuple[str, ...]) -> None:
        lines = ["The old dog runs.", "", "The green river."]
        expected = run("translate", small_bundle, *mode, *lines).stdout
        assert expected.count("\n") == 3
        plain, packed, windows, target = (tmp_path / name for name in ("in.txt", "in.gz", "windows.en", "out.fr"))
        plain.write_text("\n".join(lines), encoding="utf-8")
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        windows.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
        for path in (plain, packed, windows):
            assert run("translate", small_bundle, *mode, "--input", path, "-o", target).exit_code == 0
            ends = "\r\n" if path == windows and mode != ("--lines",) else "\n"
            found = target.read_bytes().decode()
            assert found.replace("\r\n", "\n") == expected
            assert found.count(ends) >= 2
        assert run("translate", small_bundle, *mode, "--input", packed).stdout == expected
        assert run("translate", small_bundle, *mode, stdin=plain.read_bytes()).stdout == expected
        assert run("translate", small_bundle, *mode, stdin=b"").stdout == ""

    def test_mistakes_are_named(self, small_bundle: Path, tmp_path: Path, mode: tuple[str, ...]) -> None:
        (tmp_path / "latin").write_bytes(b"dog\nca\xff\n")
        message = error("translate", small_bundle, *mode, "--input", tmp_path / "latin", "-o", tmp_path / "out")
        assert f"Line 2 of {tmp_path / 'latin'} is not UTF-8" in message
        assert sorted(path.name for path in tmp_path.iterdir()) == ["latin"]
        assert "must be from -10 to 10" in error("translate", small_bundle, *mode, "--length-penalty", "nan", stdin=b"")
        assert "surrogate" in error("translate", small_bundle, *mode, "caf\udce9")


def test_json_has_confidence_and_alignment(small_bundle: Path, text_translator: TextTranslator) -> None:
    (expected,) = text_translator.translate([f"{TEXT} 42"])
    record = json.loads(run("translate", small_bundle, "--json", f"{TEXT} 42").stdout)
    assert (record["source"], record["text"]) == (f"{TEXT} 42", expected.text)
    for found, sentence in zip(record["sentences"], expected.sentences, strict=True):
        assert found["source"] == record["source"][slice(*found["source_span"])]
        assert found["text"] == record["text"][slice(*found["target_span"])]
        assert found["is_copied"] == (sentence.translation is None)
        assert found["confidence"] == pytest.approx(sentence.confidence)
        assert [word["text"] for word in found["words"]] == [word.text for word in sentence.words]
    assert record["sentences"][-1]["is_copied"]


def test_json_says_which_numbers_are_wrong(small_bundle: Path, text_translator: TextTranslator) -> None:
    text = "The machine 5 and 6."
    (expected,) = text_translator.translate([text])
    record = json.loads(run("translate", small_bundle, "--json", text).stdout)
    assert [sentence["wrong_numbers"] for sentence in record["sentences"]] == [["14"]]
    assert expected.sentences[0].wrong_numbers == ("14",)


def test_html_is_one_document(small_bundle: Path, text_translator: TextTranslator, tmp_path: Path) -> None:
    (expected,) = text_translator.translate([PAGE], format="html")
    source, target = tmp_path / "page.html", tmp_path / "out.html"
    source.write_bytes(PAGE.encode("utf-8-sig"))
    result = run("translate", small_bundle, "--format", "html", "--input", source, "-o", target)
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_bytes() == expected.text.encode("utf-8-sig")
    assert (
        run("translate", small_bundle, "--format", "html", stdin=PAGE.encode()).stdout_bytes == expected.text.encode()
    )


def test_a_glossary(small_bundle: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("# English\tFrench\n\nold dog\tvieux toutou\nsea\tocéan\n", encoding="utf-8")
    result = run("translate", small_bundle, "--glossary", terms, TEXT)
    assert "vieux toutou" in result.stdout
    assert "océan" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"dog\tchien\ncat chat\n", "Line 2 of "),
        (b"dog\t\n", "must be a term, a tab and its translation"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (None, "cannot be read"),
    ],
)
def test_a_glossary_that_is_wrong_is_named(
    small_bundle: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    terms = tmp_path / "terms.tsv"
    if content is not None:
        terms.write_bytes(content)
    line = error("translate", small_bundle, "--glossary", terms, TEXT)
    assert message in line
    assert str(terms) in line


def test_what_does_not_go_together_is_named(small_bundle: Path, tmp_path: Path) -> None:
    for excluded in (("--format", "html"), ("--glossary", "terms")):
        message = error("translate", "--lines", small_bundle, *excluded, "x", code=2)
        assert "--lines cannot be combined with --format or --glossary" in message
    for option in (("--target-prefix", "a"), ("--nbest", "2"), ("--token-scores",), ("--attention", "--json")):
        message = error("translate", small_bundle, *option, "--json", stdin="x", code=2)
        assert message == f"{option[0]} is for lines of one sentence each: give --lines too."
    (tmp_path / "page").write_bytes(b"<p>\n\xff")
    message = error("translate", small_bundle, "--format", "html", "--input", tmp_path / "page")
    assert message.startswith(f"Line 2 of `{tmp_path / 'page'}` is not UTF-8")
    assert error("translate", small_bundle, "--format", "html", stdin=b"\xff").startswith(
        "Line 1 of `standard input` is not UTF-8 (invalid start byte); convert it"
    )
