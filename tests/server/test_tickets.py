"""However requests end, nothing of them stays in a queue, and the next one is answered."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import Translator
from edgeformer_runtime.attention import attended
from edgeformer_server.queue import batching
from edgeformer_server.service import Service
from edgeformer_server.settings import BatchLimits
from edgeformer_text import Plan, TextTranslator
from tests.amounts import examples
from tests.server.http import Client, serving, wait_until

SECONDS = 0.2
"""Time of a request that runs out of it."""
KINDS = ("short", "long", "again", "html", "pivot", "file", "stream", "too long", "no option")
PHASES = ("split", "measure", "translate", "attend", "join", "numbers")
"""What is about to be done in a thread: sentences are measured before they are queued."""
WAYS = ("answered", "left", "timed out", "failed")
"""How a request ends."""


@dataclass
class Event:
    """A request, and what becomes of it."""

    kind: str
    way: str
    phase: str
    time: int
    """Of the phase; the second one is that of sentences that are translated again."""
    delay: float
    """Seconds after which a client leaves if the phase does not come before."""
    name: str = ""
    """A word of its text, by which it is known everywhere."""
    connection: HTTPConnection | None = None
    has_ended: threading.Event = field(default_factory=threading.Event)

    def leave(self) -> None:
        if self.connection is not None and self.connection.sock is not None:
            with suppress(OSError):
                self.connection.sock.shutdown(socket.SHUT_RDWR)

    def happen(self) -> None:
        """Let the phase last until the request has ended, in one of the ways."""
        if self.way == "failed":
            raise OSError(5, "Input/output error")
        if self.way == "left":
            self.leave()
        if self.way != "answered":
            self.has_ended.wait(SECONDS if self.kind == "stream" else 1)  # a stream has no place in a queue

    def ask(self, url: str) -> None:
        text = f"{self.name}: the old dog runs."
        body: dict[str, Any] = {"source": "en", "target": "fr", "texts": [text], "options": {"max_length": 8}}
        if self.kind == "long":
            body["texts"] = [text] * 40
        elif self.kind == "again":  # neither placeholders nor numbers are copied by this model
            body["texts"] = ["\n".join(f"{text} {{place}} has {n} of 1,{n}00 dogs." for n in range(12, 20)), text]
        elif self.kind == "html":
            body |= {"texts": [f"<p>{self.name} <b>old</b> dog {{place}}<i>runs</i> 17 times.</p>"], "format": "html"}
        elif self.kind == "pivot":
            body["source"] = "de"
        elif self.kind == "stream":
            body["stream"] = True
        elif self.kind == "too long":
            body["texts"] = [self.name + "x" * 5000]
        elif self.kind == "no option":
            body["options"] = {"min_length": 1000}
        if self.way == "timed out":
            body["timeout"] = SECONDS
        path, kind, content = "/v1/translate", "application/json", json.dumps(body).encode()
        if self.kind == "file":
            path, kind = "/translate_file", "multipart/form-data; boundary=b"
            parts = {'name="source"': "en", 'name="target"': "fr", 'name="file"; filename="a.txt"': text}
            lines = [f"--b\r\nContent-Disposition: form-data; {name}\r\n\r\n{part}\r\n" for name, part in parts.items()]
            content = f"{''.join(lines)}--b--\r\n".encode()
        self.connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        leaving = threading.Timer(self.delay, self.leave)
        try:
            self.connection.request("POST", path, content, {"Content-Type": kind})
            if self.way == "left":
                leaving.start()
            self.connection.getresponse().read()
        except (OSError, HTTPException):
            assert self.way == "left"
        finally:
            leaving.cancel()
            self.connection.close()


EVENTS = st.builds(
    Event,
    st.sampled_from(KINDS),
    st.sampled_from(WAYS),
    st.sampled_from(PHASES),
    st.sampled_from([1, 2]),
    st.sampled_from([0.0, 0.003, 0.01, 0.03, 0.1, 1.0]),
)


@contextmanager
def watched(events: list[Event]) -> Iterator[None]:
    """Let events happen at their phases."""
    lock, left = threading.Lock(), Counter({(event.name, event.phase): event.time for event in events})
    named = {event.name: event for event in events}

    def before(phase: str, texts: object) -> None:
        written = repr(texts)
        for name, at in list(left):
            if at == phase and name in written:
                with lock:
                    left[name, at] -= 1
                    is_now = left[name, at] == 0
                if is_now:
                    named[name].happen()

    def told(phase: str, of: Callable[..., object], call: Callable[..., Any]) -> Callable[..., Any]:
        def tell(*arguments: Any, **options: Any) -> Any:
            before(phase, of(*arguments))
            return call(*arguments, **options)

        return tell

    hop = Service._hop

    async def noted(self: Service, *arguments: Any) -> Any:
        try:
            return await hop(self, *arguments)
        finally:
            for event in events:
                if event.name in repr(arguments[1].texts):
                    event.has_ended.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Service, "_hop", noted)
        patch.setattr(TextTranslator, "split", told("split", lambda _, text: text, TextTranslator.split))
        patch.setattr(TextTranslator, "plan", told("split", lambda _, parts, limit=None: parts, TextTranslator.plan))
        patch.setattr(
            batching, "most_positions", told("measure", lambda _, texts, options: texts, batching.most_positions)
        )
        patch.setattr(Translator, "translate", told("translate", lambda _, texts, *rest: texts, Translator.translate))
        sources = lambda _, tokenizers, translations, *rest: [each.source.text for each in translations]  # noqa: E731
        patch.setattr("edgeformer_runtime.translator.attended", told("attend", sources, attended))
        of_plan = lambda plan, *rest: plan.sentences  # noqa: E731
        patch.setattr(Plan, "joining", told("join", of_plan, Plan.joining))
        patch.setattr(Plan, "_with_numbers", told("numbers", of_plan, Plan._with_numbers))
        yield


def finish_threads(service: Service) -> None:
    """Wait until all threads have done what was asked of them."""
    for pool in (service._texts, service._large_texts, service._batches):
        barrier = threading.Barrier(pool._max_workers)
        for future in [pool.submit(barrier.wait, 60) for _ in range(pool._max_workers)]:
            future.result()


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with serving(folder, batch=BatchLimits(max_queue=64, delay=0)) as client:
        yield client


@given(st.lists(EVENTS, min_size=1, max_size=6))
@examples(2, 300)
def test_nothing_of_a_request_stays_in_a_queue_however_it_ends(client: Client, events: list[Event]) -> None:
    service = client.context.service
    for number, event in enumerate(events):
        event.name, event.has_ended, event.connection = f"Dog{number}{'abcdef'[number]}", threading.Event(), None
    with watched(events), ThreadPoolExecutor(len(events)) as clients:
        list(clients.map(lambda event: event.ask(client.url), events))
        wait_until(lambda: client.context.metrics.in_flight._value.get() == 0)
        finish_threads(service)
    assert [ticket for batcher in service._batchers.values() for ticket in batcher._tickets] == []
    wait_until(lambda: not any(batcher._begun for batcher in service._batchers.values()))
    for source in ("de", "en"):
        body = {"texts": ["The old dog {place} runs 17 times."], "source": source, "target": "fr"}
        assert client.json("/v1/translate", body).status == 200
