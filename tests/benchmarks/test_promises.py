"""The program that loads a server: short runs, and that broken promises are reported."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from edgeformer_bench.growth import Sample
from edgeformer_bench.load import phases
from edgeformer_bench.load.__main__ import main
from edgeformer_bench.load.connection import NoAnswerError, Pool
from edgeformer_bench.load.phases import Phase, Watch, overloaded
from edgeformer_bench.load.serving import Phrases, request_bytes, serving, translation_fields
from edgeformer_runtime.errors import ConfigError
from tests.runtime.test_workspace import bundle_between
from tests.store import COMMITTED

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are watched on Linux only")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle_between(COMMITTED / "fp32", tmp_path_factory.mktemp("bundles"), "bundle", "en", "fr")


@pytest.mark.slow
def test_a_server_keeps_its_promises(bundle: Path) -> None:
    arguments = ["--minutes", "0.02", "--times", "0", "--clients", "4", "--documents", "0.05", "--json"]
    result = CliRunner().invoke(main, [str(bundle), *arguments])
    report = json.loads(result.stdout)
    waiting = report["results"]["waiting"]
    assert report["problems"] == []
    assert result.exit_code == 0, result.exception
    assert waiting["outcomes"].keys() == {"200"}
    assert waiting["latency"]["p99_ms"] >= waiting["latency"]["median_ms"] > 0
    assert waiting["samples"][-1]["files"] > 4
    assert waiting["samples"][-1]["threads"] > 1


def test_too_many_requests_are_translated_or_refused(bundle: Path) -> None:
    phrases = Phrases()
    slow = {"beam_size": 8, "min_length": 30}  # so that clients are faster
    with serving(bundle, "--threads", "1", "--queue", "1", "--batch-sentences", "4") as server:
        fields = {**translation_fields(server), "options": slow}
        usual = phase(Watch(server), outcomes={"200": 20}, seconds=1.0, latencies=[0.5])

        def make() -> bytes:
            return request_bytes([phrases.next()], {**fields, "timeout": 20.0})

        result = asyncio.run(overloaded(server, make, usual, 8.0, 1.5, 20.0, Random(0)))
        assert set(result.outcomes) <= phases.OVERLOAD_STATUSES
        assert sum(result.outcomes.values()) > result.outcomes["200"] > 0
        assert not [problem for problem in result.problems if "logged" in problem or "ended" in problem]


class FakeServer:
    """A server that logged an error, or has ended."""

    def __init__(self, errors: list[str], is_alive: bool) -> None:
        self._errors, self.is_alive = errors, is_alive

    def errors(self) -> list[str]:
        return self._errors


def phase(watch: Watch, *, outcomes: dict[str, int], seconds: float, latencies: list[float]) -> Phase:
    watch.outcomes.update(outcomes)
    watch.latencies += latencies
    found = watch.phase({}, {}, [])
    return Phase(**{**{name: getattr(found, name) for name in found.__struct_fields__}, "seconds": seconds})


def test_broken_promises_are_problems() -> None:
    def problems(*figures: tuple[float, int], errors: list[str] | None = None, **changes: Any) -> list[str]:
        watch = Watch(FakeServer(errors or [], changes.pop("is_alive", True)))  # type: ignore[arg-type]  # is like one
        watch.outcomes.update(changes.pop("outcomes", {"200": 9}))
        watch.samples += [Sample(memory_mib=memory, files=files, threads=9) for memory, files in figures]
        return watch.phase(phases.LIMITS, {}, [], **changes).problems

    assert problems(*[(100 + number % 3, 20) for number in range(100)]) == []
    assert problems(*[(min(80 + number, 100), 20) for number in range(100)]) == []  # within the warm-up
    assert problems(*[(100 + number, 20 + number) for number in range(30)]) == []  # too short to tell
    grown = problems(*[(100 + number / 20, 20 + number // 50) for number in range(100)])
    assert [problem.partition(" grew")[0] for problem in grown] == ["resident memory, MiB,", "open files"]
    assert problems(outcomes={"200": 8, "503": 1}, errors=["x"]) == ["1 requests: 503", "the server logged x"]
    assert problems(outcomes={"503": 1}, allowed=phases.OVERLOAD_STATUSES, is_alive=False) == ["the server ended"]


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
        for where in ("within", "without"):
            with pytest.raises(NoAnswerError, match=where):
                await Pool(port).ask(b"GET / HTTP/1.1\r\n\r\n", 10)
        server.close()
        await pool.close()
        with pytest.raises(OSError, match="Connect call failed"):
            await pool.ask(b"", 10)

    asyncio.run(check())


def test_phrases_are_short_and_many() -> None:
    phrases = Phrases()
    texts = {phrases.next() for _ in range(200)}
    assert len(texts) > 100
    assert {len(text.split()) for text in texts} == set(range(3, 9))


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"), serving(tmp_path / "none"):
        os.abort()
