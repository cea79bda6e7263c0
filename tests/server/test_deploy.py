"""The files to deploy a server with: what they start exists, and what they say of each other is true."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from edgeformer.cli import main
from edgeformer_server.app import ENGINE_THREADS
from edgeformer_server.cli import Size
from edgeformer_server.files.documents import MAX_PROCESSES
from tests.conftest import ROOT
from tests.server.http import Client, serving
from tests.server.test_workspace import bundle_between

DEPLOY = ROOT / "deploy"
ASYNCIO_THREADS, ANYIO_THREADS = 32, 40
"""Most threads of :func:`asyncio.to_thread`, and of Starlette's for files and functions that are not coroutines."""
GRAPHS = 3
"""Graphs of a model, each with threads of its own in ONNX Runtime: encoder, decoder and attention."""


def parsed(words: list[str]) -> dict[str, Any]:
    """Parameters of ``edgeformer serve`` with arguments; fails if they are wrong."""
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    return command.make_context("serve", words).params


def dockerfile(instruction: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{instruction} +(.+)$", text, re.MULTILINE)


def size(text: str) -> int:
    """A number of bytes."""
    return Size().convert(text.upper(), None, None)


def test_the_image_starts_a_server_that_is_not_root() -> None:
    assert json.loads(dockerfile("ENTRYPOINT")[0]) == ["edgeformer", "serve"]
    settings = parsed(json.loads(dockerfile("CMD")[0]))
    assert settings["bundles"] == ("/bundles",)
    assert dockerfile("EXPOSE") == [str(settings["port"])]
    assert dockerfile("USER") == ["10001"]
    assert "[cpu,serve,text,detect,sentencepiece]" in dockerfile("RUN")[0]


def test_the_service_starts_a_server() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keep capitals
    unit.read(DEPLOY / "edgeformer.service", encoding="utf-8")
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (program.rpartition("/")[2], command) == ("edgeformer", "serve")
    settings = parsed(words)
    assert settings["memory"] == 2 * 2**30
    assert settings["files_quota"] < size(re.findall(r"size=(\d+\w)", unit["Service"]["TemporaryFileSystem"])[0])
    assert int(unit["Service"]["LimitNOFILE"]) * 3 // 4 >= settings["max_connections"]
    assert size(unit["Service"]["MemoryMax"]) > settings["memory"]
    assert int(unit["Service"]["TimeoutStopSec"]) > settings["shutdown_timeout"]


def test_the_proxy_reaches_both_servers_and_waits_longer_than_they_do() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    settings = parsed(services["server"]["command"])
    assert services["server"]["deploy"]["replicas"] == 2
    assert settings["trusted_proxies"] == 1  # nginx
    (folder,) = services["server"]["tmpfs"]
    assert settings["files_quota"] < size(re.findall(r"size=(\d+\w)", folder)[0])
    assert services["server"]["ulimits"]["nofile"] * 3 // 4 >= settings["max_connections"]
    assert int(services["server"]["stop_grace_period"].rstrip("s")) > settings["shutdown_timeout"]
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert re.findall(r"server (\w+):(\d+)", proxy) == [("server", str(settings["port"]))] * 2
    assert int(re.findall(r"proxy_read_timeout (\d+)s", proxy)[0]) > settings["timeout"]
    small, large = re.findall(r"client_max_body_size (\d+m)", proxy)
    assert (size(small), size(large)) == (settings["max_body"], settings["max_upload"])
    assert (DEPLOY / services["proxy"]["volumes"][0].partition(":")[0]).is_file()


@pytest.mark.parametrize("count", [3, pytest.param(86, marks=pytest.mark.slow)])
def test_models_share_their_threads_which_are_fewer_than_a_server_may_have(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """However many models are opened, closed, refused and opened again, and even if threads cannot start."""
    names = [f"m{number}" for number in range(count)]
    for name in names:
        bundle_between(small_bundle, tmp_path, name, "en", "fr")
    (tmp_path / "m0" / "tokenizer.json").write_text("{}", encoding="utf-8")

    def ask_all(client: Client) -> set[int]:
        def ask(name: str) -> int:
            return client.json("/v1/translate", {"texts": ["A {dog} runs."] * 3, "model": name}).status

        with ThreadPoolExecutor(count, "client") as clients:
            return set(clients.map(ask, names))

    def threads() -> int:
        return sum(not thread.name.startswith("client") for thread in threading.enumerate())

    start, failures = threading.Thread.start, iter([True] * min(count, 5))

    def failing(thread: threading.Thread) -> None:
        if not thread.name.startswith("client") and next(failures, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    before = threads()
    with serving(tmp_path, memory=1) as client:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", failing)
            ask_all(client)
        assert next(failures, None) is None
        assert ask_all(client) == {200, 500}
        service = client.context.service
        pools = [service._texts, service._large_texts, service._streams, service._openers, service._batches]
        most = 1 + sum(pool._max_workers for pool in pools) + ASYNCIO_THREADS + ANYIO_THREADS
        engine = ENGINE_THREADS // count * count * GRAPHS
        assert threads() - before <= most
        ask_all(client)
        assert threads() - before <= 1 + 3 * count + 32
        services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
        unit = (DEPLOY / "edgeformer.service").read_text(encoding="utf-8")
        limits = {services["server"]["pids_limit"], *map(int, re.findall(r"TasksMax=(\d+)", unit))}
        assert most + engine + MAX_PROCESSES < min(limits)


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_they_name_files_that_exist(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    for path in re.findall(r"(?:deploy/[\w.]+|constraints\.txt)", text):
        assert (ROOT / path).is_file(), path
