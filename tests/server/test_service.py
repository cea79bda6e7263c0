"""Requests for different models do not wait for each other, and nobody waits for what is not wanted any more."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgeformer_runtime import Translator
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import Stop
from edgeformer_runtime.translation import Source, TextHypothesis, Translation
from edgeformer_server.service import LARGE_TEXT, Job, Service, _work
from edgeformer_server.settings import BatchLimits, ServeSettings
from edgeformer_server.workspace import Workspace
from edgeformer_text import Plan, TextTranslation, TextTranslator
from edgeformer_text.plan import Joining
from tests.server.http import serving
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


@pytest.mark.parametrize("stream", [False, True])
def test_a_canceled_request_is_translated_no_further(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    from edgeformer_runtime.engines.onnx_state import OnnxState
    from edgeformer_runtime.search.session import FloatArray, IntArray

    steps, begun, may_go_on = 0, threading.Event(), threading.Event()
    step = OnnxState.step

    def counted(self: OnnxState, token: IntArray) -> FloatArray:
        nonlocal steps
        steps += 1
        if steps == 5:
            begun.set()
            assert may_go_on.wait(60)
        return step(self, token)

    monkeypatch.setattr(OnnxState, "step", counted)
    workspace = Workspace(bundles(small_bundle, tmp_path), open_translator=lambda b: Translator.open(b, threads=1))
    service = Service(workspace, ServeSettings(bundles=(), batch=LIMITS))

    async def ask() -> None:
        job = Job(
            ["A dog runs."] * 50,
            service.workspace.catalog().route("en", "fr"),
            changes={"min_length": 25, "beam_size": 1},
        )

        async def read() -> None:
            if stream:
                async for _ in service.stream(job):
                    pass
            else:
                await service.translate(job)

        task = asyncio.create_task(read())
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        if stream:  # waits for the end of its step
            may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)  # the generator of a stream is closed by the loop
        await asyncio.get_running_loop().shutdown_asyncgens()
        may_go_on.set()
        await asyncio.to_thread(service.close)
        assert steps <= 6

    asyncio.run(asyncio.wait_for(ask(), 120))


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


@pytest.mark.parametrize("counts", [[], [1], [3], [2, 3, 1], [1, 1]])
def test_a_rank_of_a_text_has_that_of_each_sentence_or_its_last(counts: list[int]) -> None:
    def translation(sentence: int, count: int) -> Translation:
        ranked = tuple(TextHypothesis(f"{sentence}.{rank}", (), (), 0.0, True) for rank in range(count))
        return Translation(Source("", ()), ranked)

    texts = [counts, [1], counts]

    def joining(chosen: list[Translation], stop: Stop) -> Joining[Any]:
        again = yield [Source(each.text, ()) for each in chosen]
        return SimpleNamespace(text=" ".join(each.text for each in again))

    plans: Any = [SimpleNamespace(sentences=list(each), joining=joining) for each in texts]
    translations = [translation(*pair) for pair in enumerate(count for each in texts for count in each)]
    named = {h.text: replace(each, hypotheses=(h,)) for each in translations for h in each.hypotheses}
    work, answer, results = _work(plans, DecodeOptions(), Stop()), translations, None
    next(work)
    while results is None:
        try:
            answer = [named[source.text] for source in work.send(answer)]
        except StopIteration as end:
            results = end.value
    first = 0
    for each, ranks in zip(texts, results, strict=True):
        assert [text.text for text in ranks] == [
            " ".join(f"{first + place}.{min(rank, count - 1)}" for place, count in enumerate(each))
            for rank in range(max(each, default=1))
        ]
        first += len(each)
