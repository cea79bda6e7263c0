"""The programs that test promises of the server under load: short runs, and that broken promises are reported."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from edgeformer_bench.growth import Sample
from edgeformer_bench.load import endurance, overload, reload, shutdown
from edgeformer_bench.load.connection import Connection, NoAnswerError, Pool
from edgeformer_bench.load.serving import Phrases, Serving, request_bytes, serving, translation_fields
from edgeformer_runtime.errors import ConfigError
from tests.runtime.test_workspace import bundle_between
from tests.store import COMMITTED

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are watched on Linux only")
SLOW = {"beam_size": 8, "min_length": 30}
"""Options that let a small model translate slowly, so that clients are faster."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle_between(COMMITTED / "fp32", tmp_path_factory.mktemp("bundles"), "bundle", "en", "fr")


def maker(server: Serving, **more: Any) -> Callable[[], bytes]:
    phrases, fields = Phrases(None), translation_fields(server)
    return lambda: request_bytes([phrases.next()], {**fields, **more})


def test_an_overloaded_server_answers_or_refuses(bundle: Path) -> None:
    with serving(bundle, "--threads", "1", "--queue", "16", "--batch-sentences", "4") as server:
        make = maker(server, timeout=1.0, options=SLOW)
        result = asyncio.run(overload.measured(server, make, 32, 16.0, 1.5, 1.0, Random(0)))
    assert set(result.outcomes) <= overload.ALLOWED
    assert result.outcomes["200"] > 0
    assert sum(result.outcomes.values()) > result.outcomes["200"]
    assert result.is_alive
    assert not result.errors
    assert result.capacity > 0
    assert [sample.memory_mib > 10 for sample in result.samples] == [True] * len(result.samples)


def test_a_server_that_ends_loses_no_request(bundle: Path) -> None:
    result = CliRunner().invoke(
        shutdown.main, [str(bundle), "--rounds", "1", "--clients", "8", "--workers", "1", "--json"]
    )
    report = json.loads(result.stdout)
    assert (result.exit_code, report["problems"]) == (0, [])
    (one,) = report["results"][""]["rounds"]
    assert set(one["before"]) == {"200"}
    assert one["in_flight"] > 0
    assert one["exit_code"] == 0
    assert "All promises are kept." in result.stderr


def test_a_killed_server_loses_requests(bundle: Path) -> None:
    with serving(bundle, "--threads", "1") as server:
        kill = server.process.send_signal
        server.process.send_signal = lambda number: kill(signal.SIGKILL)  # type: ignore[method-assign, assignment]  # planted
        lost = asyncio.run(shutdown.ended(server, maker(server, options=SLOW), 8, 0.5))
    assert lost.exit_code == -signal.SIGKILL
    assert any("lost requests: the connection was" in problem for problem in lost.problems)
    assert "exit code -9" in lost.problems


def test_a_bundle_is_replaced_under_load(bundle: Path, tmp_path: Path) -> None:
    other = bundle_between(COMMITTED / "int4", tmp_path, "other", "en", "fr")
    arguments = [str(bundle), str(other), "--times", "2", "--seconds", "1", "--clients", "4", "--json"]
    result = CliRunner().invoke(reload.main, arguments)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["problems"]) == (0, [])
    answers = report["results"][""]["answers"]
    assert set(answers) == {"first", "second"}
    with pytest.raises(ConfigError, match="too many equal translations"):
        reload.told_apart([b"a"] * 4, [["a"]] * 4, [["a"]] * 4)


def test_mixed_and_late_answers_are_problems() -> None:
    good = reload.Reload(4, 2, {"200": 9}, {"first": 4, "second": 5}, 0, 2, [])
    assert good.problems == []
    bad = msgspec.structs.replace(good, outcomes={"200": 8, "500": 1}, answers={"mixed": 3}, late=2, switches=0)
    assert bad.problems == [
        "1 requests: 500",
        "3 answers: mixed",
        "2 requests were answered by a bundle that had been replaced before",
        "the replacement was not noticed",
    ]


def test_many_requests_over_kept_connections(bundle: Path) -> None:
    arguments = ["--requests", "300", "--clients", "4", "--documents", "0.05", "--json"]
    result = CliRunner().invoke(endurance.main, [str(bundle), *arguments])
    report = json.loads(result.stdout)["results"][""]
    found = msgspec.convert(report, endurance.Endurance)
    assert result.exit_code == bool(found.problems), result.exception  # memory may still grow in a run this short
    assert report["outcomes"] == {"200": 300}
    assert all(sample["files"] > 4 and sample["threads"] > 1 for sample in report["samples"])


def steady(**changes: Callable[[int], float]) -> endurance.Endurance:
    figures: dict[str, Callable[[int], float]] = {
        "memory_mib": lambda number: 100 + number % 3,
        "files": lambda number: 20,
        "threads": lambda number: 9,
        **changes,
    }
    samples = [
        Sample(**{name: figure(number) for name, figure in figures.items()})  # type: ignore[arg-type]  # as the fields are
        for number in range(100)
    ]
    return endurance.Endurance(4, 100.0, {"200": 1000}, samples, [])


def test_growth_is_reported() -> None:
    assert steady().problems == []
    assert steady(memory_mib=lambda number: min(80 + number, 100)).problems == []  # within the warm-up
    grown = steady(memory_mib=lambda number: 100 + number / 20, files=lambda number: 20 + number // 50)
    assert [problem.partition(" grew")[0] for problem in grown.problems] == ["resident memory, MiB,", "open files"]
    failed = msgspec.structs.replace(steady(), outcomes={"200": 999, "500": 1}, errors=["x"])
    assert failed.problems == ["1 requests: 500", "the server logged x"]


def test_overload_has_a_verdict() -> None:
    samples = [Sample(memory_mib=100.0, files=20, threads=9) for _ in range(20)]
    good = overload.Overload(
        10.0, 4.0, 10.0, {"200": 100, "503": 300}, 20.0, [1.0, 2.0, 3.0], 0.1, samples, [], True, 0.0
    )
    assert good.problems == []
    grown = [Sample(memory_mib=100.0 + 5 * number, files=20, threads=9) for number in range(20)]
    bad = msgspec.structs.replace(
        good, outcomes={"200": 100, "503": 100, "500": 1}, recovered_seconds=3.0, samples=grown, errors=["x"]
    )
    assert [problem[:20] for problem in bad.problems] == [
        "1 requests: 500",
        "memory under load, M",
        "no request was answe",
        "only 20 requests/s c",
        "the server logged x",
    ]
    assert "the server ended" in msgspec.structs.replace(good, is_alive=False).problems


def test_the_client_reads_answers_in_pieces_and_tells_how_a_connection_ended() -> None:
    whole = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 5\r\n\r\nhello"

    async def check() -> None:
        numbers = count()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = next(numbers)
            await reader.readuntil(b"\r\n\r\n")
            for place in range(len(whole) if number == 0 else 30 * (number == 1)):
                writer.write(whole[place : place + 1])
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = Pool(port)
        answer = await pool.ask(b"GET / HTTP/1.1\r\n\r\n", 10)
        assert (answer.status, answer.body, answer.can_retry) == (503, b"hello", True)
        for where, is_refusal in (("within", False), ("without", True)):
            connection = await Connection.open(port)
            with pytest.raises(NoAnswerError, match=where) as caught:
                await connection.send(b"GET / HTTP/1.1\r\n\r\n")
            assert caught.value.is_refusal is is_refusal
            assert not connection.is_usable
            connection.close()
        server.close()
        await pool.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await Connection.open(port)

    asyncio.run(check())


def test_phrases_are_short_and_many(tmp_path: Path) -> None:
    source = tmp_path / "text"
    source.write_text("one two three four five six seven eight nine ten\nshort\n", encoding="utf-8")
    phrases = Phrases(source)
    texts = {phrases.next() for _ in range(200)}
    assert len(texts) > 20
    assert {len(text.split()) for text in texts} == set(range(3, 9))
    source.write_text("short\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no line with three words"):
        Phrases(source)
    with pytest.raises(ConfigError, match="cannot be read"):
        Phrases(tmp_path / "none")


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"), serving(tmp_path / "none"):
        os.abort()
