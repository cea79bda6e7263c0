"""Sentences of concurrent requests share batches, and do not notice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime import OptionError, Translation, Translator
from edgeformer_runtime.encoding import as_sources
from edgeformer_runtime.engines.onnx_state import OnnxState
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import MAX_ROWS
from edgeformer_runtime.search.session import FloatArray, IntArray
from edgeformer_runtime.translation import Source
from edgeformer_server.queue.batching import (
    ALIKE,
    MAX_BATCHES,
    TURN,
    Batcher,
    BatchReport,
    BatchSettings,
    ClosedError,
    QueueFullError,
    Ticket,
)
from edgeformer_server.queue.fair_semaphore import FairSemaphore
from edgeformer_server.settings import BatchLimits
from edgeformer_server.workspace import Workspace
from tests.server.http import wait_until


@pytest.fixture
def workspace(small_bundle: Path) -> Iterator[Workspace]:
    workspace = Workspace({"model": small_bundle}, open_translator=lambda bundle: Translator.open(bundle, threads=1))
    yield workspace
    workspace.close()


@contextmanager
def batcher(reports: list[BatchReport] | None = None, **limits: Any) -> Iterator[Batcher]:
    batcher = Batcher("model", BatchLimits(**limits), ([] if reports is None else reports).append)
    yield batcher
    batcher.close()


def submit(
    queue: Batcher, sentences: Sequence[str], setting: BatchSettings, ticket: Ticket | None = None
) -> Future[list[Translation]]:
    """Queue the sentences of a request that leaves when they are translated."""
    ticket = ticket or queue.admit(len(sentences))
    tokenizer = setting.translator.source_tokenizer if setting.translator else None
    sources = as_sources(tokenizer, sentences) if tokenizer else [Source(sentence, ()) for sentence in sentences]
    future = ticket.submit(sources, setting)
    future.add_done_callback(lambda _: queue.leave(ticket))
    return future


MakeSetting = Callable[..., BatchSettings]


@pytest.fixture
def setting(workspace: Workspace) -> Iterator[MakeSetting]:
    """Makes settings with a leased model."""
    with workspace.lease("model") as translator:
        yield lambda **changes: BatchSettings(translator, "en", "fr", DecodeOptions(**changes))


def summary(translations: list[Translation]) -> list[Any]:
    """What must be equal; scores, which are sums of float32 values, to four digits at least."""
    return [
        (t.source, [(h.ids, h.text, h.finished, Score(h.score)) for h in t.hypotheses], t.error and type(t.error))
        for t in translations
    ]


@dataclass
class Score:
    """A score that equals others within the rounding errors of float32."""

    value: float | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Score) and self.value == pytest.approx(other.value, abs=1e-5)


def test_batches_are_translated_at_the_same_time(
    workspace: Workspace, setting: MakeSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, translate = threading.Barrier(2), Translator.translate

    def together(self: Translator, *arguments: Any, **options: Any) -> list[Translation]:
        both.wait(60)
        return translate(self, *arguments, **options)

    monkeypatch.setattr(Translator, "translate", together)
    with batcher(max_sentences=1, parallel=2) as queue:
        dog, men = submit(queue, ["A dog runs.", "Two men."], setting()).result(120)
    assert (dog.source.text, men.source.text) == ("A dog runs.", "Two men.")


def test_a_wrong_option_fails_its_own_request_only(workspace: Workspace, setting: MakeSetting) -> None:
    with batcher(delay=0.2) as together:
        wrong = submit(together, ["A dog."], setting(beam_size=0))
        right = submit(together, ["A dog."], setting(beam_size=1))
        assert right.result(60)[0].text
        with pytest.raises(OptionError, match="`beam_size` must be at least 1"):
            wrong.result(60)


def test_a_full_queue_refuses_requests(workspace: Workspace, setting: MakeSetting) -> None:
    with batcher(max_queue=4, max_sentences=1, delay=1) as together:
        futures = []

        def flood() -> None:
            for _ in range(5):
                futures.append(submit(together, ["A dog."] * 5, setting()))  # noqa: PERF401  # keeps what was accepted

        with pytest.raises(QueueFullError, match=r"busy; try again in \d+ s") as caught:
            flood()
        assert caught.value.retry_after >= 1
        assert all(len(future.result(60)) == 5 for future in futures)
        assert submit(together, ["A dog."], setting()).result(60)


def test_a_long_request_does_not_fill_the_queue(workspace: Workspace, setting: MakeSetting) -> None:
    with batcher(max_queue=8, max_sentences=2) as together:
        long = submit(together, ["A dog."] * 200, setting())
        short = submit(together, ["Two men."], setting())
        assert short.result(60)
        long.cancel()


def test_closing_finishes_what_is_queued(workspace: Workspace, setting: MakeSetting) -> None:
    with batcher(delay=5) as together:
        future = submit(together, ["A dog."] * 5, setting())
        began = time.monotonic()
        together.close()
        assert time.monotonic() - began < 4
        assert len(future.result(0)) == 5
        with pytest.raises(ClosedError, match="shutting down"):
            submit(together, ["A dog."], setting())


def test_an_empty_request_is_answered_at_once(workspace: Workspace, setting: MakeSetting) -> None:
    with batcher() as together:
        assert submit(together, [], setting()).result(0) == []


def test_a_request_that_would_wait_for_too_long_is_refused_at_once(setting: MakeSetting) -> None:
    with batcher(max_sentences=2, delay=0) as together:
        with together.admit(1, seconds=0.01):  # nothing waits
            pass
        submit(together, ["A dog."] * 4, setting()).result(60)
        long = submit(together, ["A dog."] * 400, setting())
        others = [submit(together, ["A dog."] * 2, setting()) for _ in range(100)]
        with pytest.raises(QueueFullError):
            together.admit(1, seconds=0.01)
        with together.admit(1, seconds=3600) as ticket:
            assert submit(together, ["A dog."], setting(), ticket).result(60)
        for each in [long, *others]:
            each.cancel()


def test_a_short_request_is_not_refused_because_long_ones_wait(setting: MakeSetting) -> None:
    """Since requests take turns."""
    with batcher(max_sentences=2, delay=0) as together:
        submit(together, ["A dog."] * 4, setting()).result(60)
        together._done, together._busy = 10.0, 10.0  # a second for each sentence
        long = [submit(together, ["A dog."] * 400, setting()) for _ in range(3)]
        assert submit(together, ["A dog."], setting(), together.admit(1, seconds=7)).result(60)
        with pytest.raises(QueueFullError):
            together.admit(2, seconds=1)
        for each in long:
            each.cancel()


def test_what_is_still_prepared_counts_as_waiting(setting: MakeSetting) -> None:
    with batcher(max_queue=2) as together:
        with together.admit(2) as ticket:
            with pytest.raises(QueueFullError):
                together.admit(1)
            assert len(submit(together, ["A dog.", "Two men."], setting(), ticket).result(60)) == 2
            with together.admit(2), pytest.raises(QueueFullError):
                together.admit(1)
        with together.admit(1):  # both have left
            pass


def test_what_nobody_waits_for_any_more_leaves_the_batch_at_the_next_step(
    workspace: Workspace, setting: MakeSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is translated together with it does not change."""
    steps, begun = OnnxState.step, threading.Event()
    counts: list[int] = []
    limits: dict[str, Any] = {"beam_size": 1, "min_length": 25}
    with workspace.lease("model") as translator:
        expected = summary(translator.translate(["Two men play."], DecodeOptions(**limits)))

    def counted(self: OnnxState, token: IntArray) -> FloatArray:
        counts.append(len(token))
        if len(counts) == 3:
            begun.set()
            assert canceled.wait(60)
        return steps(self, token)

    canceled = threading.Event()
    monkeypatch.setattr(OnnxState, "step", counted)
    with batcher(delay=60, max_sentences=6) as together:
        long = submit(together, ["The old dog runs."] * 5, setting(**limits))
        other = submit(together, ["Two men play."], setting(**limits))
        assert begun.wait(60)
        long.cancel()
        canceled.set()
        assert summary(other.result(60)) == expected
    assert counts[:4] == [6, 6, 6, 1]
    assert set(counts[4:]) == {1}


@pytest.mark.parametrize("count", [1, 40])
def test_nobody_waits_for_more_than_a_turn_of_each_batch_however_long_the_others_are(
    setting: MakeSetting, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """All in rows of decoder steps, so that it does not depend on the machine. Steps take longer than it takes to wake
    a thread, as those of larger models do."""
    steps, begun, may_go_on = OnnxState.step, threading.Event(), threading.Event()
    rows: list[int] = []

    def counted(self: OnnxState, token: IntArray) -> FloatArray:
        rows.append(len(token))
        if len(rows) == 5:
            begun.set()
            assert may_go_on.wait(60)
        time.sleep(0.01)
        return steps(self, token)

    monkeypatch.setattr(OnnxState, "step", counted)
    with batcher(delay=0) as together:
        long = [submit(together, ["The old dog runs."] * count, setting(min_length=28)) for _ in range(30)]
        assert begun.wait(60)
        before = sum(rows)
        short = submit(together, ["Two men."], setting(max_length=8))
        may_go_on.set()
        assert short.result(60)
        assert sum(rows) - before <= MAX_BATCHES * (TURN + MAX_ROWS)
        for each in long:
            each.cancel()


def test_a_sentence_does_not_wait_for_the_others_of_its_batch(
    setting: MakeSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, translations, is_done = OnnxState.step, list[list[Translation]](), threading.Event()
    sentences = ["Two men.", "green dogs sing and the old men run and run and run in the snow"]
    options: dict[str, Any] = {"beam_size": 1, "max_len_a": 1.0}
    expected = [summary(setting().translator.translate([each], DecodeOptions(**options))) for each in sentences]
    lengths = [len(results[0][1][0][0]) for results in expected]
    assert lengths[0] < lengths[1] - 2
    count = 0

    def counted(self: OnnxState, token: IntArray) -> FloatArray:
        nonlocal count
        count += 1
        if count == lengths[1] - 1:
            assert is_done.wait(60)
        return steps(self, token)

    monkeypatch.setattr(OnnxState, "step", counted)
    with batcher(delay=60, max_sentences=2) as together:
        short, long = (submit(together, [each], setting(**options)) for each in sentences)
        short.add_done_callback(lambda future: is_done.set())
        translations += [short.result(60), long.result(60)]
    assert list(map(summary, translations)) == expected


def test_turns_go_round() -> None:
    turns, order = FairSemaphore(1), list[int]()

    def work(number: int, times: int, *, first: bool = False) -> None:
        turns.acquire(first=first)
        for _ in range(times):
            order.append(number)
            if times > 1:
                turns.give_way()
        turns.release()

    def begin(pool: ThreadPoolExecutor, *numbers: int, times: int) -> None:
        """Let threads wait for their turns, one after the other."""
        for count, number in enumerate(numbers, 1):
            pool.submit(work, number, times, first=number == 11)
            wait_until(lambda count=count: len(turns._line) == count)  # type: ignore[misc]

    turns.acquire()
    with ThreadPoolExecutor(3) as pool:
        begin(pool, 0, 1, 2, times=3)
        turns.give_way()
        assert order == [0, 1, 2]
        turns.release()
    assert order == [0, 1, 2] * 3
    turns.acquire()  # it is free
    with ThreadPoolExecutor(2) as pool:
        begin(pool, 10, 11, times=1)
        turns.release()
    assert order[9:] == [11, 10]


REQUESTS = st.lists(
    st.tuples(st.integers(1, 2), st.lists(st.integers(0, 9).map(lambda size: "x" * size), min_size=1, max_size=7)),
    min_size=1,
    max_size=5,
)


@given(REQUESTS, st.integers(1, 5), st.integers(1, 50))
def test_batches_are_full_fair_alike_and_of_one_setting(
    requests: list[tuple[int, list[str]]], sentences: int, positions: int
) -> None:
    """Without threads, which would take them. Sentences take as many positions as they have characters, and five
    more."""
    translator: Any = None
    limits = BatchLimits(parallel=0, max_sentences=sentences, max_positions=2 * positions)
    queue = Batcher("model", limits, threads=mock.Mock())
    with mock.patch(
        f"{Batcher.__module__}.most_positions", lambda _, texts, options: [5 + len(each.text) for each in texts]
    ):
        for beam, texts in requests:
            submit(queue, texts, BatchSettings(translator, "en", "fr", DecodeOptions(beam_size=beam)))
    left = [list(range(len(texts))) for _, texts in requests]
    submitted = [ticket.submission for ticket in queue._tickets]
    assert queue.queue_length == sum(map(len, left))
    while queue.queue_length:
        before = [each for ticket in queue._tickets if (each := ticket.submission) and each.waiting]
        batch = queue._parts(queue._ready())
        sizes = [ticket.positions[place] for ticket, part in batch for place in part]
        assert batch[0][0] is before[0]
        assert len({id(ticket) for ticket, _ in batch}) == len(batch)
        assert {ticket.setting for ticket, _ in batch} == {before[0].setting}
        assert len(sizes) <= sentences
        assert len(sizes) == 1 or sum(sizes) <= positions
        assert max(sizes) <= ALIKE * min(sizes)
        for ticket, part in batch:
            own = left[submitted.index(ticket)]
            assert [own.pop(0) for _ in part] == list(part)
        same = [
            ticket
            for ticket in before
            if ticket.setting == before[0].setting
            and all(max(*sizes, size) <= ALIKE * min(*sizes, size) for size in ticket.positions[ticket.taken :][:1])
        ]
        taken = {id(ticket): len(part) for ticket, part in batch}
        most = max(taken.values())
        for ticket in same:
            assert taken.get(id(ticket), 0) >= most - 1 or not left[submitted.index(ticket)]
        rest = [size for ticket in same for size in ticket.positions[ticket.taken :][:1]]
        is_full = len(sizes) == sentences or any(sum(sizes) + size > positions for size in rest)
        assert is_full or sum(sizes) >= positions or not rest
        order = [ticket.submission for ticket in queue._tickets]
        assert {id(each) for each in order[len(order) - len(taken) :]} == set(taken)
    assert not any(left)
