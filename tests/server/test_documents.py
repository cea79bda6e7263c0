"""Documents that strangers send, and the processes that read and write them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeformer_runtime.errors import DataError
from edgeformer_server.files import documents
from edgeformer_server.files.document_process import DocumentReply, DocumentRequest, answer, decoded
from edgeformer_server.files.documents import DocumentProcesses
from edgeformer_text.block import Block
from edgeformer_text.documents.files import read_document, translate_content
from tests.commands import python
from tests.server.hostile_documents import LONG, REFUSED, SLOW, TRANSLATED, docx
from tests.server.http import Client, serving
from tests.server.test_workspace import bundle_between
from tests.text.attended import text_translator

PAIR = {"source": "en", "target": "fr"}
LONG_OR_SLOW = sorted(LONG | SLOW)


@pytest.fixture(scope="module")
def client(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    bundle = bundle_between(small_bundle, tmp_path_factory.mktemp("bundles"), "en-fr", "en", "fr")
    with serving(bundle, max_characters=10_000, request_seconds=300) as client:  # a busy machine refuses late, too
        yield client


def test_a_document_is_answered_with_what_is_to_be_translated_or_its_last_translation() -> None:
    def answered(*texts: str, is_last: bool = False) -> DocumentReply:
        translations = [([text], "fr") for text in texts]
        return answer(DocumentRequest("a.md", b"# a dog\n", translations, is_last))

    def read(*texts: str) -> list[str]:
        return [part.text for part in answered(*texts).pieces[0] if isinstance(part, Block)]

    assert (read(), read("# ein Hund\n")) == (["a dog"], ["ein Hund"])
    languages = ["# ein Hund\n", "# un chien\n", "# un perro\n"]
    for count in (1, 2, 3):
        assert answered(*languages[:count], is_last=True) == DocumentReply(content=languages[count - 1].encode())


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("html", "<p>{}"),
        ("html", '<img alt="{}">'),
        ("html", '<p>a <i title="{}">dog</i>'),
        ("md", "# {}"),
        ("txt", "{}"),
    ],
)
def test_an_answer_has_no_list_as_long_as_the_text_which_would_take_long_to_decode(suffix: str, content: str) -> None:
    def longest(value: object) -> int:
        values = [*value.values()] if isinstance(value, dict) else value
        return max([len(values), *map(longest, values)]) if isinstance(values, list) and values else 0

    sent = DocumentRequest(f"a.{suffix}", content.format("a dog runs " * 1000).encode())
    found = answer(sent)
    reply = msgspec.msgpack.encode(found)
    assert longest(msgspec.msgpack.decode(reply, strict=False)) < 100
    pieces = [
        [part for part in piece if isinstance(part, Block)] for piece in read_document(sent.content, sent.name).pieces
    ]
    places = [[[*block.origins] for block in piece] for piece in pieces]
    received = [[part for part in piece if isinstance(part, Block)] for piece in decoded(reply).pieces]
    assert [[[*block.origins] for block in piece] for piece in received] == places


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in LONG_OR_SLOW])
def test_hostile_documents_are_refused(name: str) -> None:
    suffix, make = REFUSED[name]
    with pytest.raises(DataError, match=rf"`a\.{suffix}`"):
        read_document(make(), f"a.{suffix}")


@pytest.mark.parametrize(
    "name", ["bzip2", *(pytest.param(name, marks=[pytest.mark.slow] * (name != "long word")) for name in LONG_OR_SLOW)]
)
def test_hostile_documents_are_no_error_of_the_server(client: Client, name: str) -> None:
    suffix, make = REFUSED[name]
    answer = client.upload("/translate_file", f"a.{suffix}", make(), **PAIR)
    assert answer.status in (400, 413)
    assert answer.error
    assert client.get("/health").status == 200


SLOW_TO_TRANSLATE = ("elements around nothing", "ends without field", "elements around a word", "fields without end")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_TO_TRANSLATE)) for name in TRANSLATED]
)
def test_strange_documents_stay_whole(name: str) -> None:
    suffix, make = TRANSLATED[name]
    content = make()
    written, _ = translate_content(text_translator(), content, f"a.{suffix}")
    before, after = (read_document(document, f"a.{suffix}") for document in (content, written))
    assert len(after.pieces) == (0 if suffix == "po" else len(before.pieces))


def read(content: bytes, name: str) -> list[str]:
    """Ask a process what there is to translate."""

    async def ask() -> list[str]:
        pieces = (await DocumentProcesses().ask(DocumentRequest(name, content))).pieces
        return ["".join(part if isinstance(part, str) else part.text for part in piece) for piece in pieces]

    return asyncio.run(ask())


@pytest.mark.parametrize("name", ["spans inside each other", "plural forms"])
def test_processes_read_what_is_read_here(name: str) -> None:
    suffix, make = TRANSLATED[name]
    content = make()
    pieces = read_document(content, f"a.{suffix}").pieces
    texts = ["".join(part if isinstance(part, str) else part.text for part in piece) for piece in pieces]
    assert read(content, f"a.{suffix}") == texts


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit less")
def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    content = docx(f"<w:p><w:r><w:t>{'a ' * 2_500_000}</w:t></w:r></w:p>")
    assert len(read(docx("<w:p><w:r><w:t>a dog</w:t></w:r></w:p>"), "a.docx")) == 1
    with pytest.raises(DataError, match="takes too much memory or time"):
        read(content, "a.docx")
    monkeypatch.setattr(documents, "MEMORY", 2**30)
    monkeypatch.setattr(documents, "MAX_ANSWER", 2**27)
    assert len(read(content, "a.docx")) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit less")
def test_documents_leave_half_of_the_memory_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are: they are refused before the system ends a process."""
    given, start = list[int](), asyncio.create_subprocess_exec

    async def noted(*words: str, **options: Any) -> asyncio.subprocess.Process:
        given.append(int(words[-2]))
        return await start(*words, **options)

    async def ask(lines: int) -> None:
        await DocumentProcesses().ask(DocumentRequest("a.md", b"- a dog\n" * lines))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    asyncio.run(ask(1))
    monkeypatch.setattr(documents, "available_memory", lambda: 160 * 2**20)
    with pytest.raises(DataError, match="takes too much memory or time"):
        asyncio.run(ask(100_000))
    monkeypatch.setattr(documents, "available_memory", lambda: None)
    asyncio.run(ask(1))
    assert given[0] == given[2] > 192 * 2**20
    assert given[1] * documents.MAX_PROCESSES == 80 * 2**20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit less")
def test_a_library_that_goes_on_without_memory_is_ended() -> None:
    """It would report each of a million attributes that it has no memory for."""
    suffix, make = REFUSED["many attributes"]
    request = msgspec.msgpack.encode(DocumentRequest(f"a.{suffix}", make()))
    words = [sys.executable, "-m", "edgeformer_server.files.document_process", str(250 * 2**20), "600"]
    ended = subprocess.run(words, input=request, capture_output=True, timeout=300, check=False)
    is_refused = bool(ended.stdout) and bool(msgspec.msgpack.decode(ended.stdout, type=DocumentReply).problem)
    assert ended.returncode == 1 or is_refused  # libxml2 before 2.14 refuses such a long tag
    assert len(ended.stderr) < 10_000


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not limit processor time")
def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SECONDS", 0)
    with pytest.raises(DataError, match="takes too much memory or time"):
        read(b"<p>" * 300_000, "a.html")


def test_what_is_too_much_for_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_ANSWER", 1000)
    with pytest.raises(DataError, match="too much text"):
        read(b"<p>a" * 10_000, "a.html")


def test_documents_are_read_one_after_another_and_cancelled() -> None:
    async def ask() -> int:
        shared = DocumentProcesses()
        tasks = [asyncio.create_task(shared.ask(DocumentRequest("a.html", b"<p>" * 200_000))) for _ in range(4)]
        await asyncio.sleep(0.5)
        count = len(children())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not children()
        assert all(task.cancelled() for task in tasks)
        return count

    assert asyncio.run(ask()) <= documents.MAX_PROCESSES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_documents_are_finished_after_a_signal_to_all_processes() -> None:
    async def ask() -> int:
        task = asyncio.create_task(DocumentProcesses().ask(DocumentRequest("a.html", b"<p>" * 10_000)))
        while not (ready := list(filter(_ignores_signals, children()))):
            await asyncio.sleep(0.01)
        os.kill(ready[0], signal.SIGTERM)
        return len((await task).pieces)

    assert asyncio.run(ask()) == 1


def children() -> list[int]:
    """Processes that read documents and were started by this one."""
    if sys.platform != "linux":
        return []
    names = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(name) for name in names if b"document_process" in read_if_there(Path(f"/proc/{name}/cmdline"))]


def _ignores_signals(process: int) -> bool:
    ignored = re.search(rb"SigIgn:\s*([0-9a-f]+)", read_if_there(Path(f"/proc/{process}/status")))
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


WORK = """
import asyncio, os, signal
from pathlib import Path
from edgeformer_server.files.document_process import DocumentRequest
from edgeformer_server.files.documents import DocumentProcesses
async def main():
    task = asyncio.ensure_future(DocumentProcesses().ask(DocumentRequest("a.html", b"<p>" * 300_000)))
    while not Path(f"/proc/self/task/{os.getpid()}/children").read_text():
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    print(Path(f"/proc/self/task/{os.getpid()}/children").read_text(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_outlives_a_killed_server() -> None:
    children = python(WORK, check=False).stdout.split()
    assert children
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}/fd").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_documents_that_are_given_up_at_any_moment_leave_room_for_others() -> None:
    """As many are read at a time as a server permits, and none of them keeps a file open."""
    document = DocumentRequest("a.txt", b"\r\n--7" * 400_000)

    async def ask() -> int:
        documents = DocumentProcesses()
        for seconds in [number / 100 for number in range(12)]:
            await asyncio.gather(*(given_up(documents, seconds) for _ in range(3)))
        await asyncio.wait_for(documents.ask(DocumentRequest("a.txt", b"A dog.")), 60)
        while len(asyncio.all_tasks()) > 2:
            await asyncio.sleep(0.01)
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    async def given_up(documents: DocumentProcesses, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(documents.ask(document), seconds)

    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    assert asyncio.run(asyncio.wait_for(ask(), 120)) <= before + 5  # those of the loop itself
