"""Documents that are made to break whatever reads them."""

from __future__ import annotations

import bz2
import io
import struct
import zipfile
from collections.abc import Callable, Mapping

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OPEN = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)
RUN = "<w:r><w:t>a dog</w:t></w:r>"
PARAGRAPH = f"<w:p>{RUN}</w:p>"
MARK = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'

Make = Callable[[], bytes]


def word(body: str, head: str = "") -> str:
    return f"{head}<w:document {WORD}><w:body>{body}</w:body></w:document>"


def open_document(body: str) -> bytes:
    return zipped({"content.xml": f"<office:x {OPEN}>{body}</office:x>"})


def zipped(members: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return stream.getvalue()


def docx(body: str, head: str = "") -> bytes:
    return zipped({"word/document.xml": word(body, head)})


def encoded(encoding: str, said: str = "") -> bytes:
    head = f'<?xml version="1.0" encoding="{said or encoding}"?>'
    return zipped({"word/document.xml": word(PARAGRAPH, head).encode(encoding)})


def utf_7() -> bytes:
    xml = word("<w:p/>" * 1000).replace("<", "+ADw-")
    return zipped({"word/document.xml": '<?xml version="1.0" encoding="UTF-7"?>' + xml})


def raw_member(
    data: bytes, *, method: int = 0, size: int | None = None, flags: int = 0, extra: bytes = b"", times: int = 1
) -> bytes:
    """A zip file whose directory says what it likes about ``word/document.xml``."""
    name, claimed = b"word/document.xml", len(data) if size is None else size
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 46, flags, method, 0, 33, 0, len(data), claimed, len(name), 0) + name
    numbers = (46, 46, flags, method, 0, 33, 0, len(data), claimed, len(name), len(extra), 0, 0, 0, 0, 0)
    entry = struct.pack("<4s6H3I5H2I", b"PK\1\2", *numbers)
    folder = (entry + name + extra) * times
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, times, times, len(folder), len(local) + len(data), 0)
    return local + data + folder + end


def nested_zip() -> bytes:
    inner = docx(PARAGRAPH)
    for _ in range(5):
        inner = zipped({"word/document.xml": word(PARAGRAPH), "word/media/inner.docx": inner})
    return inner


def with_flag(content: bytes) -> bytes:
    """Mark the first member as encrypted."""
    data = bytearray(content)
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    return bytes(data)


def po(text: str) -> bytes:
    return f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{text}'.encode()


REFUSED: dict[str, tuple[str, Make]] = {
    # zip files
    "bzip2": ("docx", lambda: raw_member(bz2.compress(bytes(2**24)), method=12, size=100)),
    "bzip2 beside": ("odt", lambda: zipped({"content.xml": "<x/>", "x": bytes(100)}, zipfile.ZIP_BZIP2)),
    "lzma": ("docx", lambda: zipped({"word/document.xml": word(PARAGRAPH)}, zipfile.ZIP_LZMA)),
    "deflate64": ("docx", lambda: raw_member(b"x", method=9)),
    "unknown method": ("docx", lambda: raw_member(b"x", method=99)),
    "encrypted": ("docx", lambda: with_flag(docx(PARAGRAPH))),
    "wrong checksum": ("docx", lambda: raw_member(word(PARAGRAPH).encode())),
    "claims nothing": ("docx", lambda: raw_member(word(PARAGRAPH).encode(), size=0)),
    "claims 4 GiB": ("docx", lambda: raw_member(word(PARAGRAPH).encode(), size=2**32 - 2)),
    "zip64 claims": (
        "docx",
        lambda: raw_member(b"<x/>", size=2**32 - 1, extra=struct.pack("<2H2Q", 1, 16, 2**63, 2**63)),
    ),
    "overlapping": ("docx", lambda: raw_member(word(PARAGRAPH).encode(), times=50)),
    "20,000 members": ("docx", lambda: zipped({f"{index}": b"" for index in range(10_001)}, zipfile.ZIP_STORED)),
    "no end": ("docx", lambda: docx(PARAGRAPH)[:-22]),
    "end only": ("odt", lambda: docx(PARAGRAPH)[-22:]),
    "no members": ("odt", lambda: zipped({})),
    "folder": ("docx", lambda: zipped({"word/document.xml/": b""})),
    "60 MiB of one text": ("docx", lambda: docx(f"<w:p><w:r><w:t>{'a ' * 30_000_000}</w:t></w:r></w:p>")),
    "250 MiB beside": ("odt", lambda: zipped({"content.xml": "<x/>", "x": bytes(250 * 2**20)})),
    # XML
    "UTF-7": ("docx", utf_7),
    "UTF-32": ("docx", lambda: encoded("utf-32")),
    "EBCDIC": ("docx", lambda: encoded("cp037", "IBM037")),
    "GB18030": ("docx", lambda: encoded("gb18030")),
    "Latin-1": ("docx", lambda: encoded("latin-1", "ISO-8859-1")),
    "overlong": ("docx", lambda: zipped({"word/document.xml": word(PARAGRAPH).encode() + b"\xc0\xbc"})),
    "null character": ("docx", lambda: docx("<w:p><w:r><w:t>&#0;</w:t></w:r></w:p>")),
    "deep": ("docx", lambda: docx("<w:sdt>" * 100_000)),
    "deep and closed": ("odt", lambda: open_document("<text:p>" * 300 + "a" + "</text:p>" * 300)),
    "paragraphs inside each other": ("docx", lambda: docx(f"<w:p>{RUN}" * 200 + "<w:r/>" * 16_000 + "</w:p>" * 200)),
    "a million elements": ("docx", lambda: docx("<w:p/>" * 1_000_000)),
    "a million comments": ("docx", lambda: docx("<!---->" * 1_000_000)),
    "attributes without quotes": ("docx", lambda: docx("<w:p a=1/>")),
    "many attributes": ("docx", lambda: docx("<w:p " + " ".join(f'a{n}="1"' for n in range(1_000_000)) + "/>")),
    "many names": ("docx", lambda: docx("".join(f'<w:p xmlns:n{n}="u"/>' for n in range(501_000)))),
    "long attribute": ("docx", lambda: docx(f'<w:p a="{"x" * 11_000_000}"/>')),
    "long name": ("docx", lambda: docx(f"<{'x' * 1_000_000}/>")),
    # others
    "no UTF-8": ("txt", lambda: b"a \xff\xfe dog"),
    "UTF-16 text": ("md", lambda: "a dog".encode("utf-16")),
    "long text": ("txt", lambda: b"a dog " * 100_000),
    "long word": ("txt", lambda: b"a" * 500_000),
    "many cues": ("srt", lambda: b"1\n0:1 --> 0:2\na\n\n" * 400_000),
    "elements inside each other": ("html", lambda: b"<b>a" * 50_000),
    "broken messages": ("po", lambda: po('msgid "a\nmsgstr ""\n')),
    "many directives": ("po", lambda: po(f'msgid "{"%d " * 30_000}"\nmsgstr ""\n')),
}
"""Kind of each document, and what makes it."""
LONG = {"long text", "long word", "elements inside each other", "many directives"}
"""Those that are whole, and only have more characters than a server takes."""
SLOW = {
    *("60 MiB of one text", "250 MiB beside", "many attributes", "many names"),
    *("a million comments", "a million elements", "20,000 members"),
}
"""Others that take seconds to make or to refuse."""

TRANSLATED: dict[str, tuple[str, Make]] = {
    "zip files inside each other": ("docx", nested_zip),
    "names outside": ("docx", lambda: zipped({"word/document.xml": word(PARAGRAPH), "../../x": b"", "/etc/x": b""})),
    "UTF-16": ("docx", lambda: encoded("utf-16")),
    "fields without end": ("docx", lambda: docx(f"<w:p>{RUN}{MARK.format('begin') * 3000}</w:p>")),
    "ends without field": ("docx", lambda: docx(f"<w:p>{RUN}{MARK.format('end') * 3000}</w:p>")),
    "marks that cross": (
        "docx",
        lambda: docx(
            "<w:p>"
            + "".join(f'<w:bookmarkStart w:id="{n}"/>' for n in range(2000))
            + RUN
            + "".join(f'<w:bookmarkEnd w:id="{n}"/>' for n in range(2000))
            + "</w:p>"
        ),
    ),
    "containers inside each other": (
        "docx",
        lambda: docx("<w:p>" + "<w:ins>" * 200 + RUN + "</w:ins>" * 200 + "</w:p>"),
    ),
    "spans inside each other": (
        "odt",
        lambda: open_document("<text:p>a " + "<text:span>" * 200 + "dog" + "</text:span>" * 200 + " runs</text:p>"),
    ),
    "elements around a word": ("html", lambda: b"<p>the " + b"<b>" * 2000 + b"dog" + b"</b>" * 2000 + b" runs.</p>"),
    "elements around nothing": ("html", lambda: b"<p>the dog " + b"<b></b>" * 2000 + b" runs.</p>"),
    "paragraphs without end": ("html", lambda: b"<p>" * 5_000 + b"a dog"),
    "quotes without end": ("html", lambda: b"a dog " + b'<a b="' * 1000),
    "comment without end": ("html", lambda: b"a dog <!--" + b"<!-- " * 20_000),
    "attributes without end": ("html", lambda: b"a dog <a " + b"a=1 " * 2000),
    "scripts without end": ("html", lambda: b"<script><textarea><style>" * 2000),
    "brackets": ("md", lambda: b"a dog " + b"[" * 3000),
    "stars": ("md", lambda: b"a dog " + b"*a " * 2000),
    "ticks": ("md", lambda: b"a dog " + b" ".join(b"`" * count for count in range(1, 130))),
    "quotations": ("md", lambda: b"> " * 20_000 + b"a dog"),
    "cells": ("md", lambda: b"|a" * 300 + b"|\n" + b"|-" * 300 + b"|\n"),
    "images": ("md", lambda: b"![a](" * 1500),
    "fences": ("md", lambda: b"a dog\n" + b"```\n~~~\n" * 5000),
    "number of a cue": ("srt", lambda: b"9" * 100_000 + b"\n00:00:01,000 --> 00:00:02,000\na dog\n"),
    "long cue": ("srt", lambda: b"1\n00:00:01,000 --> 00:00:02,000\n" + b"a " * 4000 + b"\n" + b"b " * 500),
    "cues without text": ("vtt", lambda: b"WEBVTT\n\n" + b"00:01.000 --> 00:02.000\n\n" * 20_000),
    "number of plurals": ("po", lambda: po('msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[99999999999999] ""\n')),
    "plural forms": (
        "po",
        lambda: (
            b'msgid ""\nmsgstr "Plural-Forms: nplurals=999999999; plural=n;\\n"\n\n'
            b'msgid "a dog"\nmsgid_plural "dogs"\nmsgstr[0] ""\n'
        ),
    ),
    "escapes": ("po", lambda: po(f'msgid "a dog {chr(92) + "377"}{(chr(92) + "000") * 3000}"\nmsgstr ""\n')),
    "no characters": ("txt", lambda: b"\x00\x01\x02" * 3000),
    "marks on one letter": ("txt", lambda: ("a" + "\u0301" * 5000).encode()),
    "directions": ("txt", lambda: ("\u202e\u2066dog" * 1000).encode()),
}
"""Those that take little to translate."""
