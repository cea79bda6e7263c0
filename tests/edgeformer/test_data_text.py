"""Reading of parallel text, and every way in which that fails."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.data.text import read_lines, read_pairs
from edgeformer.errors import DataError
from tests.amounts import examples

LINES = ["one", "", "NEL \x85 and LS \u2028 and PS \u2029 and FF \x0c", "é\u202f?"]


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["plain.txt", "packed.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last_end", [True, False])
def test_lines_end_at_newlines_alone(tmp_path: Path, name: str, end: str, mark: str, last_end: bool) -> None:
    path = write(tmp_path / name, mark + end.join(LINES) + (end if last_end else ""))
    assert read_lines(path) == LINES


@given(lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"))))
@examples(10, 200)
def test_any_lines_are_read_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = write(tmp_path_factory.getbasetemp() / "lines.txt", "".join(f"{line}\n" for line in lines))
    assert read_lines(path) == lines


def test_two_aligned_files(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.fr.gz", "un\ndeux")
    assert read_pairs([source, str(target)]) == [("one", "un"), ("two", "deux")]


def test_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "one\tun\nempty target\t\n\ntwo\tdeux\tnote\tmore\n")
    assert read_pairs([path]) == [("one", "un"), ("empty target", ""), ("", ""), ("two", "deux")]


def test_zip_member(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/a.txt", "one\tun\r\n")
    assert read_pairs([f"{tmp_path / 'a.zip'}:folder/a.txt"]) == [("one", "un")]
    with pytest.raises(DataError, match=r"no member `b\.txt`; it holds folder/a\.txt"):
        read_pairs([f"{tmp_path / 'a.zip'}:b.txt"])


def test_different_line_counts_name_both_files(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.fr", "un\n")
    with pytest.raises(DataError, match=r"a\.en` has 2 and .*a\.fr` has 1"):
        read_pairs([source, target])


@pytest.mark.parametrize(("content", "line"), [(b"\xff", 1), (b"a\nb\nc \xe9 d\n", 3), (b"a\n\xe2\x80", 2)])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_undecodable_bytes_name_the_line(tmp_path: Path, content: bytes, line: int, mark: bytes) -> None:
    with pytest.raises(DataError, match=rf"Line {line} of .*bad\.txt is not UTF-8 \(.*\); convert it"):
        read_lines(write(tmp_path / "bad.txt", mark + content))


@pytest.mark.parametrize(
    "header",
    [
        "source\ttarget",
        "en\tfr",
        "English\tFrench",
        "src_text\ttgt_text",
        "id\tsource\ttarget",
        '"Source"\t"Target"',
        "en-US\tde",
    ],
)
def test_a_header_is_refused(tmp_path: Path, header: str) -> None:
    path = write(tmp_path / "a.tsv", f"{header}\nGo.\tVa !\n")
    with pytest.raises(DataError) as caught:
        read_pairs([path])
    shown = header.replace("\t", "<TAB>")
    assert str(caught.value).startswith(f"`{path}` begins with the header {shown}, not with a sentence pair; remove")


@pytest.mark.parametrize(
    "pair",
    [
        "Hello\tBonjour",
        "Text\tText",
        "target\tcible",
        "English\tAnglais",
        "Source:\tTarget:",
        "it\tes",
        "1\t2",
        "input the text\toutput the text",
        "\t",
    ],
)
def test_a_short_first_pair_is_a_pair(tmp_path: Path, pair: str) -> None:
    assert read_pairs([write(tmp_path / "a.tsv", f"{pair}\nGo.\tVa !\n")]) == [tuple(pair.split("\t")), ("Go.", "Va !")]


def test_a_header_is_looked_for_in_the_first_line_only(tmp_path: Path) -> None:
    assert read_pairs([write(tmp_path / "a.tsv", "Go.\tVa !\nsource\ttarget\n")])[1] == ("source", "target")


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["bad.tsv"], r"Line 2 of .*bad\.tsv"),
        ([], "0 were given"),
        (["bad.tsv"] * 3, "3 were given"),
        (["absent.txt"], "does not exist"),
        (["absent.gz"], "does not exist"),
        (["absent.zip:a.txt"], "does not exist"),
        (["."], "is a folder; give the files in it"),
        (["bad.zip"], "name the file inside it"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, files: list[str], problem: str) -> None:
    write(tmp_path / "bad.tsv", "one\tun\ntwo deux\n")
    with pytest.raises(DataError, match=problem):
        read_pairs([f"{tmp_path}/{file}" for file in files])


def test_damaged_archives(tmp_path: Path) -> None:
    whole = gzip.compress(b"some text\n" * 100)
    damaged = whole[:20] + bytes(byte ^ 0xFF for byte in whole[20:30]) + whole[30:]
    for content in (b"plain text", b"", whole[:-9], damaged):
        (tmp_path / "a.gz").write_bytes(content)
        if content:
            with pytest.raises(DataError, match=r"a\.gz` is damaged"):
                read_lines(tmp_path / "a.gz")
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(DataError, match="is damaged"):
        read_lines(f"{tmp_path / 'a.zip'}:a.txt")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.txt", "some text")
    content = (tmp_path / "b.zip").read_bytes().replace(b"some text", b"sane text")
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        read_lines(f"{tmp_path / 'b.zip'}:a.txt")
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.txt", "some text")
    with pytest.raises(DataError, match="uses a compression method that zip files usually do not"):
        read_lines(f"{tmp_path / 'c.zip'}:a.txt")


def test_memory_has_one_line_at_most(tmp_path: Path) -> None:
    bomb = bytes(30_000_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bomb))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", bomb)
    for file in (tmp_path / "a.gz", f"{tmp_path / 'a.zip'}:a.txt"):
        tracemalloc.start()
        with pytest.raises(DataError, match=r"Line 1 of .* has more than 1,048,576 bytes; give text with one"):
            read_lines(file)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"text\n" * 200))
    assert read_lines(tmp_path / "b.gz") == ["text"] * 200
