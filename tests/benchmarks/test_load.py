"""The study of servers under load."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from edgeformer_bench.load.serving import running, serving
from edgeformer_bench.load.study import measure, requests_of
from edgeformer_runtime.errors import ConfigError
from tests.runtime.test_workspace import bundle_between

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are watched on Linux only")
TEXTS = ["The old dog runs near the sea.", "Two men play chess."]


@pytest.mark.slow
def test_clients_measure_a_server_and_count_refused_requests(small_bundle: Path, tmp_path: Path) -> None:
    bundle = bundle_between(small_bundle, tmp_path, "bundle", "en", "fr")
    with serving(bundle, "--queue", "4") as server:
        one = asyncio.run(measure("one", server, requests_of(TEXTS, "en", "fr"), 1, 2))
        many = asyncio.run(measure("many", server, requests_of(TEXTS, "en", "fr"), 64, 2))
        broken = asyncio.run(measure("broken", server, requests_of(TEXTS, "en", "xx"), 1, 1))
    assert one.requests_per_second > 0
    assert one.latency is not None
    assert 0 < one.latency.median_ms <= one.latency.p95_ms <= one.latency.p99_ms
    assert (one.refused, one.failed) == (0, 0)
    assert many.refused > 0
    assert many.failed == 0
    assert broken.failed > 0
    assert (broken.requests_per_second, broken.latency) == (0, None)
    assert one.memory_mib > 10


def test_a_server_that_does_not_start_is_an_error() -> None:
    with pytest.raises(ConfigError, match="The server did not start"), running([sys.executable, "-c", ""]):
        pass
