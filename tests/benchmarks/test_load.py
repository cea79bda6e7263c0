"""The program that loads a server: what it says of one that keeps its promises, and of one that does not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer_bench.growth import ProcessState
from edgeformer_bench.load import LIMITS, OVERLOAD_LIMITS, LoadGenerator, main
from tests.store import COMMITTED

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are watched on Linux only")


@pytest.mark.slow
def test_a_server_keeps_its_promises() -> None:
    result = CliRunner().invoke(main, [str(COMMITTED / "fp32"), "--minutes", "0.03", "--clients", "4", "--times", "2"])
    assert result.exit_code == 0, result.output
    cells = {line.split("│")[1].strip(): line.split("│")[2:4] for line in result.stdout.splitlines() if "│" in line}
    assert all(int(cell.replace(",", "")) > 10 for cell in cells["requests: 200"])
    assert {"p50, p95, p99, ms", "memory, MiB", "open files", "threads"} <= cells.keys()


def test_a_server_that_breaks_promises_is_told_from_one_that_does_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as server:

        def problems(*figures: tuple[float, int], **outcomes: int) -> list[str]:
            load = LoadGenerator(server, 0)
            load.samples += [ProcessState(memory_mib=memory, files=files, threads=9) for memory, files in figures]
            load.outcomes.update(outcomes)
            return load.problems({"200"}, LIMITS)

        assert problems(*[(100 + number % 3, 20) for number in range(100)], **{"200": 9}) == []
        assert problems(*[(min(80 + number, 100), 20) for number in range(100)]) == []  # within the warm-up
        assert problems(*[(100 + number, 20 + number) for number in range(30)]) == []  # too short to tell
        grown = problems(*[(100 + number / 20, 20 + number // 50) for number in range(100)])
        assert [problem.partition(" grew")[0] for problem in grown] == ["memory, MiB", "open files"]
        assert problems(**{"200": 8, "503": 1}) == ["1 requests: 503"]
        assert LoadGenerator(server, 0).problems({"200", "503"}, OVERLOAD_LIMITS) == []
        server.communicate("\n")
        assert LoadGenerator(server, 0).problems({"200", "503"}, OVERLOAD_LIMITS) == ["the server ended"]


def test_requests_without_an_answer_are_counted() -> None:
    async def outcomes(answer: bytes) -> dict[str, int]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        with subprocess.Popen([sys.executable, "-c", ""], text=True) as process:
            load = LoadGenerator(process, server.sockets[0].getsockname()[1])
        await load.ask(10.0)
        server.close()
        await load.ask(10.0)
        return dict(load.outcomes)

    refused = b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nhello"
    lost = {"no answer (ConnectionRefusedError)": 1}
    assert asyncio.run(outcomes(refused)) == {"503 without Retry-After": 1, **lost}
    assert asyncio.run(outcomes(refused.replace(b"Busy", b"Busy\r\nRetry-After: 1"))) == {"503": 1, **lost}
    assert asyncio.run(outcomes(refused[:-1])) == {"no answer (IncompleteReadError)": 1, **lost}


@pytest.mark.slow
def test_a_bundle_that_cannot_be_served_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path / "missing")])
    assert result.exit_code == 1
    assert "could be started" in result.output
