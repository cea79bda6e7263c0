"""Requests that are made to break a server: its parsers of HTTP, JSON, forms and addresses, and its texts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping

PAIR = {"source": "en", "target": "fr"}


def http(
    body: bytes = b"", *headers: str, to: str = "POST /translate", kind: str = "application/json", length: str = ""
) -> bytes:
    """A request.

    Args:
        body: its body.
        headers: more headers.
        to: method and address.
        kind: type of the body.
        length: what it says its length is, if not the right one.
    """
    lines = [f"{to} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {length or len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def asked(to: str = "POST /translate", **fields: object) -> bytes:
    """A request to translate, with other fields."""
    return http(json.dumps({"q": "a dog", **PAIR, **fields}).encode(), to=to)


def v1(**fields: object) -> bytes:
    """The same for ``/v1/translate``."""
    return asked("POST /v1/translate", texts=["a dog"], **fields)


def form(body: bytes, boundary: str = "b") -> bytes:
    """A form of several parts."""
    return http(body, to="POST /translate_file", kind=f"multipart/form-data; boundary={boundary}")


def part(head: str, content: bytes = b"x") -> bytes:
    """A part of a form."""
    return b"--b\r\nContent-Disposition: form-data" + head.encode() + b"\r\n\r\n" + content + b"\r\n"


END = b"--b--\r\n"
_CHUNKED = b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

REQUESTS: Mapping[str, bytes] = {
    # JSON
    "lists inside each other": http(b"[" * 500_000),
    "objects inside each other": http(b'{"q":' * 100_000),
    "closed lists inside each other": http(b'{"q":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "number without end": http(b'{"q":1e' + b"9" * 100_000 + b"}"),
    "digits": http(b'{"q":"a","source":"en","target":"fr","alternatives":' + b"9" * 100_000 + b"}"),
    "not a number": http(b'{"q":NaN}'),
    "one name again and again": http(b"{" + b",".join([b'"q":"a"'] * 100_000) + b"}"),
    "many names": http(json.dumps({str(number): 0 for number in range(60_000)}).encode()),
    "half a character": http(rb'{"q":"\ud800","source":"en","target":"fr"}'),
    "no UTF-8": http(b'{"q":"\xff\xfe"}'),
    "overlong": http(b'{"q":"\xc0\xaf"}'),
    "UTF-16": http('{"q":"a"}'.encode("utf-16")),
    "byte-order mark": http(b"\xef\xbb\xbf{}"),
    "nothing": http(),
    "null": http(b"null"),
    "list": http(b'["a"]'),
    "string without end": http(b'{"q":"' + b"a" * 500_000),
    "compressed zeros": http(gzip.compress(bytes(2**28)), "Content-Encoding: gzip"),
    # fields
    "object as text": asked(q={"a": ["b"]}),
    "list of everything": asked(q=["a", 1, None, {}]),
    "5,000 texts": asked(q=["a"] * 5000),
    "no texts": asked(q=[]),
    "long language": asked(source="e" * 500_000),
    "path as language": asked(source="../../../etc/passwd"),
    "language with zeros": asked(target="fr\0\r\nX: y"),
    "unknown format": asked(format="x" * 100_000),
    "many alternatives": asked(alternatives=10**9),
    "path as model": v1(model="/etc/passwd"),
    "large beam": v1(options={"beam_size": 10**9}),
    "long output": v1(options={"min_length": 10**9, "max_length": 10**9}),
    "time backwards": v1(timeout=-1),
    "unknown options": v1(options={"__class__": {"__init__": 1}}),
    "large glossary": v1(glossary={"(a+)+$" * 10 + str(number): "x" for number in range(8000)}),
    # texts
    "long text": asked(q="a dog " * 150_000),
    "long word": asked(q="a" * 900_000),
    "line ends": asked(q="\n" * 400_000),
    "marks": asked(q="a" + "\u0301\u0489" * 4000),
    "directions": asked(q="\u202e\u2066\u200f" * 3000),
    "ligature": asked(q="\ufdfa" * 500),
    "families": asked(q="👨‍👩‍👧‍👦" * 1000),
    "controls": asked(q="\0\x1b[2J\x07" * 2000),
    "not characters": asked(q="\ufffe\uffff\U0010ffff" * 3000),
    "brackets": asked(q="<" * 9000, format="html"),
    "entities": asked(q="&#x110000;&amp" * 600, format="html"),
    "braces": asked(q="{a,plural," * 900),
    # forms
    "form without boundary": http(b"x", kind="multipart/form-data"),
    "long boundary": form(END, "b" * 60_000),
    "form without end": form(part('; name="q"')),
    "10,000 parts": form(part('; name="q"') * 10_000 + END),
    "long head of a part": form(part('; name="' + "q" * 900_000 + '"') + END),
    "part without name": form(part("") + END),
    "name of a file with zeros": form(part('; name="file"; filename="a\0.txt"') + END),
    "path as name of a file": form(part('; name="file"; filename="../../../etc/passwd"') + END),
    "100,000 fields": http(b"q=a&" * 100_000, kind="application/x-www-form-urlencoded"),
    "broken escapes": http(b"q=%zz%f&source=%&target=%ff", kind="application/x-www-form-urlencoded"),
    # HTTP
    "long header": http(b"{}", "X: " + "a" * 100_000),
    "10,000 headers": http(b"{}", *(f"X{number}: a" for number in range(10_000))),
    "long address": http(to="GET /" + "a" * 100_000),
    "header with zeros": http(b"{}", "X: \0"),
    "folded header": http(b"{}", "X: a\r\n b: c"),
    "two lengths": http(b"{}", "Content-Length: 3"),
    "length and chunks": http(b"0\r\n\r\n", "Transfer-Encoding: chunked"),
    "negative length": http(b"{}", length="-1"),
    "length beyond all": http(b"{}", length="9" * 19),
    "letters as length": http(b"{}", length="0x2"),
    "broken chunk": _CHUNKED + b"ZZ\r\n",
    "chunk beyond all": _CHUNKED + b"f" * 40 + b"\r\n",
    "unknown version": b"GET / HTTP/9.9\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "noise": bytes(range(256)) * 400,
    # addresses
    "path outside": http(to="GET /download_file/../../../etc/passwd"),
    "escaped path outside": http(to="GET /download_file/..%2f..%2f..%2fetc%2fpasswd"),
    "zeros in an address": http(to="GET /%00%ff%fe"),
    "other method": http(b"{}", to="TRACE /translate"),
}
"""Requests by what is special about each."""
