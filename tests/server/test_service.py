"""Requests for different models do not wait for each other, and nobody waits for what is not wanted any more."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime import Translator
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.engines.onnx_state import OnnxState
from edgeformer_runtime.search.session import FloatArray, IntArray
from edgeformer_server.service import LARGE_TEXT, Job, Service
from edgeformer_server.settings import BatchLimits, ServeSettings
from edgeformer_server.workspace import Workspace
from edgeformer_text import Plan, TextTranslation, TextTranslator
from tests.server.http import serving, wait_until
from tests.server.test_workspace import bundle_between

LIMITS = BatchLimits(delay=0)


def bundles(small_bundle: Path, folder: Path) -> dict[str, Path]:
    pairs = (("en", "fr"), ("de", "en"))
    return {f"{a}-{b}": bundle_between(small_bundle, folder, f"{a}-{b}", a, b) for a, b in pairs}


def test_a_model_that_is_being_opened_keeps_nobody_else_waiting(small_bundle: Path, tmp_path: Path) -> None:
    may_open, is_opening = threading.Event(), threading.Event()

    def open_translator(bundle: Bundle) -> Translator:
        if bundle.path.name == "de-en":
            is_opening.set()
            assert may_open.wait(60)
        return Translator.open(bundle, threads=1)

    workspace = Workspace(bundles(small_bundle, tmp_path), open_translator=open_translator)
    service = Service(workspace, ServeSettings(bundles=(), batch=LIMITS))

    async def ask() -> None:
        slow_job = Job(["Der Hund."], service.workspace.catalog().route("de", "en"))
        slow = [asyncio.create_task(service.translate(slow_job)) for _ in range(100)]
        await asyncio.to_thread(is_opening.wait, 60)
        for _ in range(3):
            ((translation,),) = await service.translate(
                Job(["A dog runs."], service.workspace.catalog().route("en", "fr"))
            )
            assert translation.text
        assert not any(task.done() for task in slow)
        may_open.set()
        assert len(await asyncio.gather(*slow)) == 100

    asyncio.run(asyncio.wait_for(ask(), 120))
    service.close()


def test_large_html_is_read_in_another_process_as_it_would_be_here(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(Workspace(bundles(small_bundle, tmp_path)), ServeSettings(bundles=(), batch=LIMITS))
    document = "\ufeff<p title='A dog'>A &amp; <b>dog</b><sup>[1]</sup>runs.\r\n<br></p>"
    job = Job([document, "<i>A dog."], service.workspace.catalog().route("en", "fr"), "html")

    async def ask() -> list[TextTranslation]:
        return [ranks[0] for ranks in await service.translate(job)]

    here = asyncio.run(ask())

    def refuse(*args: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr("edgeformer_server.service.LARGE_TEXT", 0)
    monkeypatch.setattr("edgeformer_text.text_translator.html_parts", refuse)
    there = asyncio.run(ask())
    assert [(each.text, each.sentences) for each in there] == [(each.text, each.sentences) for each in here]
    service.close()


def test_large_texts_are_split_one_after_the_other_and_small_ones_meanwhile(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, is_splitting = threading.Event(), threading.Semaphore(0)
    split = TextTranslator.split

    def slow(self: TextTranslator, text: str, **options: Any) -> Plan:
        if len(text) >= LARGE_TEXT:
            is_splitting.release()
            assert may_go_on.wait(60)
        return split(self, text, **options)

    monkeypatch.setattr(TextTranslator, "split", slow)
    workspace = Workspace(bundles(small_bundle, tmp_path), open_translator=lambda b: Translator.open(b, threads=1))
    service = Service(workspace, ServeSettings(bundles=(), batch=LIMITS))

    async def ask() -> None:
        route = service.workspace.catalog().route("en", "fr")
        large = [asyncio.create_task(service.translate(Job(["7 " * LARGE_TEXT], route))) for _ in range(6)]
        assert await asyncio.to_thread(is_splitting.acquire, timeout=60)
        assert await service.translate(Job(["A dog runs."], route))
        assert not is_splitting.acquire(blocking=False)
        may_go_on.set()
        await asyncio.gather(*large)

    asyncio.run(asyncio.wait_for(ask(), 120))
    service.close()


def test_sentences_are_translated_if_no_further_thread_can_start(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def failing(thread: threading.Thread) -> None:
        if thread.name.startswith("translate"):
            raise RuntimeError("can't start new thread")
        start(thread)

    with serving(small_bundle, request_seconds=10.0) as client:
        monkeypatch.setattr(threading.Thread, "start", failing)
        for _ in range(3):
            answer = client.json(
                "/v1/translate", {"texts": ["The old dog {place} runs."] * 3, "source": "en", "target": "fr"}
            )
            assert answer.status == 200, answer.json


@pytest.mark.parametrize("stream", [False, True])
def test_what_nobody_waits_for_any_more_is_translated_no_further(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    steps, begun, may_go_on, step = 0, threading.Event(), threading.Event(), OnnxState.step

    def counted(self: OnnxState, token: IntArray) -> FloatArray:
        nonlocal steps
        steps += 1
        if steps == 5:
            begun.set()
            assert may_go_on.wait(60)
        return step(self, token)

    monkeypatch.setattr(OnnxState, "step", counted)
    options = {"min_length": 25, "beam_size": 1}
    body = {"texts": ["A dog runs."] * 50, "source": "en", "target": "fr", "stream": stream, "options": options}
    with serving(small_bundle) as client:
        connection = HTTPConnection(client.url.removeprefix("http://"), timeout=60)
        connection.request("POST", "/v1/translate", json.dumps(body), {"Content-Type": "application/json"})
        assert begun.wait(60)
        connection.sock.shutdown(socket.SHUT_RDWR)
        if not stream:  # which waits for the end of its step
            wait_until(lambda: client.context.metrics.in_flight._value.get() == 0)
        time.sleep(0.1)
        may_go_on.set()
        wait_until(lambda: client.context.metrics.in_flight._value.get() == 0)
        connection.close()
    assert steps <= 6
