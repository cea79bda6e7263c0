"""The study of servers under load."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgeformer_bench.load import LANGUAGES, SOURCE
from edgeformer_bench.load.study import measure, served
from edgeformer_runtime.errors import ConfigError
from tests.runtime.test_workspace import bundle_between


@pytest.mark.slow
@pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")  # whose import changes the whole process
def test_clients_measure_a_server_and_count_refused_requests(small_bundle: Path, tmp_path: Path) -> None:
    bundle = bundle_between(small_bundle, tmp_path, "bundle", "en", "fr")
    source = tmp_path / "text"
    source.write_text("The old dog runs near the sea.\nTwo men play chess.\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-c", "from edgeformer.cli import main; main()", "serve", str(bundle)]
    with served([*command, "--port", str(port), "--queue", "4", "--no-log"], port) as process:
        environment = {SOURCE: str(source), LANGUAGES: "en-fr"}
        one = measure("one", process.pid, port, 1, 4, environment)
        many = measure("many", process.pid, port, 64, 4, environment)
        broken = measure("broken", process.pid, port, 1, 10, {**environment, LANGUAGES: "en-xx"})
    assert one.requests_per_second > 0
    assert 0 < one.median_ms <= one.p95_ms <= one.p99_ms
    assert (one.refused, one.failed) == (0, 0)
    assert many.refused > 0
    assert many.failed == 0
    assert broken.failed > 0
    assert broken.requests_per_second == 0


def test_a_server_that_does_not_start_is_an_error() -> None:
    with pytest.raises(ConfigError, match="The server did not start"), served([sys.executable, "-c", ""], 1):
        pass
