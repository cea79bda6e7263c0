"""The largest requests that a server takes, and what else keeps it busy."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from edgeformer_runtime.limits import MIB
from tests.server.http import PARTS, multipart

SIZE, FILE_SIZE = MIB - 1000, 10 * MIB - 1000
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
Sent = tuple[str, bytes, str]
"""Address, body and kind of a request."""


def words(count: int, length: int) -> list[str]:
    chosen = random.Random(1)
    return ["".join(chosen.choices("abcdeé+.*(ABC", k=length)) for _ in range(count)]


def v1(**values: object) -> Sent:
    body = {"source": "en", "target": "fr", "options": {"max_length": 1}, **values}
    return "/v1/translate", json.dumps(body).encode(), JSON


def libre(path: str, **values: object) -> Sent:
    return path, json.dumps({"source": "en", "target": "fr", **values}).encode(), JSON


def form(path: str, text: bytes) -> Sent:
    return path, b"source=en&target=fr&q=" + text, FORM


def parts(path: str, content: bytes, name: str | None = None) -> Sent:
    return path, multipart({"source": "en", "target": "fr"}, content, name), PARTS


def texts(path: str) -> dict[str, Callable[[], Sent]]:
    """Largest requests to an endpoint of LibreTranslate's API that takes a text."""
    return {
        "one text": lambda: libre(path, q="A dog runs. " * (SIZE // 12)),
        "a text of any language": lambda: libre(path, q="A dog runs. " * (SIZE // 12), source="auto"),
        "texts": lambda: libre(path, q=["a"] * (SIZE // 5)),
        "fields": lambda: libre(path, q="A dog.", **{f"f{n}": n for n in range(SIZE // 18)}),
        "lists": lambda: libre(path, q="A dog.", x=[[]] * (SIZE // 5)),
        "escapes": lambda: form(path, b"%41" * (SIZE // 3)),
        "lines": lambda: form(path, b"%0A" * (SIZE // 3)),
        "parts": lambda: parts(path, b"\r\n--" * (SIZE // 4)),
        "query": lambda: (f"{path}?source=en&target=fr&q={'%41' * 5000}", b"", FORM),
        "fields of a query": lambda: (f"{path}?{'q=&' * 5000}", b"", FORM),
    }


def files() -> dict[str, Callable[[], Sent]]:
    contents = {
        "a.txt": b"A dog runs.\n",
        "lines.txt": b"7\n\n",
        "a.html": b"<p>7",
        "a.md": b"* 7\n",
        "a.srt": b"1\n00:00:01,000 --> 00:00:02,000\n7\n\n",
        "ends.txt": b"\r\n--",
        "a.exe": b"\0",
    }
    path = "/translate_file"
    return {
        name: lambda name=name, content=content: parts(path, content * (FILE_SIZE // len(content)), name)  # type: ignore[misc]
        for name, content in contents.items()
    }


REQUESTS: dict[str, dict[str, Callable[[], Sent]]] = {
    "/v1/translate": {
        "glossary": lambda: v1(texts=["A dog."], glossary=dict(zip(words(1000, 200), words(1000, 200), strict=True))),
        "one text": lambda: v1(texts=["A dog runs. " * (SIZE // 12)]),
        "a text of any language": lambda: v1(texts=["A dog runs. " * (SIZE // 12)], source="auto"),
        "a long word": lambda: v1(texts=["a" * (SIZE - 1000)]),
        "sentences": lambda: v1(texts=["A dog. " * 4900], scores=True),
        "blank texts": lambda: v1(texts=[""] * (SIZE // 4)),
        "texts": lambda: v1(texts=["A dog runs."] * 512, options={"max_length": 1, "n_best": 8, "beam_size": 8}),
        "options": lambda: v1(texts=["A dog."], options={"no_options": [["dog"] * 100] * (SIZE // 800)}),
        "stream": lambda: v1(texts=["A dog runs. " * (SIZE // 12)], stream=True),
        "tags": lambda: v1(texts=["<b>" * 49_000 + "dog"], format="html"),
        "words with tags": lambda: v1(texts=["<b>a" * 49_000], format="html"),
        "paragraphs": lambda: v1(texts=["<p>A dog. " * 40_000], format="html"),
        "attributes": lambda: v1(texts=["<i title=dog>a" * 49_000], format="html"),
        "an attribute": lambda: v1(texts=['<img alt="' + "A dog runs. " * (SIZE // 12) + '">'], format="html"),
        "a paragraph": lambda: v1(texts=["<p>" + "A dog runs. " * (SIZE // 12)], format="html"),
        "fields": lambda: v1(**{f"f{n}": n for n in range(SIZE // 18)}),
        "one name again and again": lambda: (
            "/v1/translate",
            b"{" + b",".join([b'"texts":1'] * (SIZE // 10)) + b"}",
            JSON,
        ),
        "a long language": lambda: v1(texts=["A dog."], source="e" * (SIZE - 1000)),
    },
    "/translate": texts("/translate"),
    "/detect": texts("/detect"),
    "/translate_file": files(),
    "/download_file/{name}": {"name": lambda: ("/download_file/" + "a" * 15_000, b"", "")},
}
PIECES = {
    "chunks": b"POST /detect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 100_000,
    "headers": b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 16_000 + b"\r\n",
    "allowed headers": b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 4_000 + b"\r\n",
    "requests": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 8_000,
    "long address": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "header with zeros": b"GET /health HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n",
    "folded header": b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\r\n b: c\r\n\r\n",
    "other method": b"TRACE /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "blank lines": b"\r\n" * 200_000,
}
"""What is written to a connection."""
