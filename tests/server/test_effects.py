"""Every setting of a server does something: a server with it and one without it differ in what a client sees.

The settings themselves say what must be tested: a new one without an entry here is a failure.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from edgeformer_runtime.limits import MIB
from edgeformer_server.cli import serve as serve_command
from edgeformer_server.queue.batching import MAX_BATCHES
from edgeformer_server.server import bind
from edgeformer_server.settings import BatchLimits, ServeSettings
from tests.commands import succeeded
from tests.conftest import ROOT
from tests.server.http import Client, logged_lines, serving, wait_until

TEXT = "The old dog runs."


@dataclass(frozen=True)
class Effect:
    """What a setting changes."""

    value: Any
    """A value other than the default."""
    seen: Callable[[Client], Any]
    """What a client sees of it."""
    default: Any
    """What it sees without the setting; ``...`` if that depends on the machine."""
    changed: Any
    """What it sees with it."""


def translate(client: Client, *texts: str, **values: Any) -> int:
    body = {"texts": texts or [TEXT], "source": "en", "target": "fr", **values}
    return client.json("/v1/translate", body).status


def is_served(client: Client) -> bool:
    return translate(client) == 200


def metric(client: Client, name: str, sentences: int) -> float:
    """A figure of batches, once that of the last of some sentences has been added, which is after the answer."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = client.get("/metrics").body.decode()
        values = dict(re.findall(r'^edgeformer_(\w+){model="en-fr"} (\S+)', text, re.MULTILINE))
        if float(values.get("batch_sentences_sum", 0)) >= sentences:
            return float(values[name])
        time.sleep(0.01)
    raise AssertionError(f"{name} was not measured")


def translate_at_last(client: Client, *texts: str) -> None:
    """Translate, even if a machine that does a lot else refuses at first."""
    deadline = time.monotonic() + 120
    while (status := translate(client, *texts)) != 200:
        assert (status, time.monotonic() < deadline) == (503, True)


def batches(client: Client) -> float:
    translate_at_last(client, "one dog", "two dogs", "three dogs")
    return metric(client, "batch_sentences_count", 3)


def has_waited(client: Client) -> bool:
    translate_at_last(client)
    return metric(client, "queue_seconds_sum", 1) >= 0.3


def batches_of_model(client: Client) -> int:
    assert is_served(client)
    return client.context.service._batchers["en-fr"]._most_begun


def open_models(client: Client) -> int:
    assert is_served(client)
    assert translate(client, source="de", target="en") == 200
    return len(client.context.service.workspace.open_models)


def threads_of_operators(client: Client) -> int:
    with client.context.service.workspace.lease("en-fr") as translator:
        return translator.session.threads


def alternatives(client: Client) -> int:
    return client.form("/translate", q=TEXT, source="en", target="fr", alternatives="1").status


def upload(client: Client) -> int:
    return client.upload("/translate_file", "a.txt", TEXT.encode(), source="en", target="fr").status


def logged(client: Client) -> int:
    with logged_lines() as lines:
        client.get("/health")
        wait_until(lambda: lines or not client.context.settings.access_log)  # it is written after the answer
    return len(lines)


def key_file(folder: Path) -> Path:
    path = folder / "keys"
    path.write_text("one\n", encoding="utf-8")
    return path


EFFECTS: dict[str, Callable[[Path], Effect]] = {
    "access_log": lambda folder: Effect(True, logged, 0, 1),
    "batch.delay": lambda folder: Effect(0.3, has_waited, ..., True),
    "batch.max_positions": lambda folder: Effect(1, batches, 1, 3),
    "batch.max_queue": lambda folder: Effect(0, translate, 200, 503),
    "batch.max_sentences": lambda folder: Effect(1, batches, 1, 3),
    "batch.parallel": lambda folder: Effect(3, batches_of_model, MAX_BATCHES, 3 * MAX_BATCHES),
    "client_files_quota": lambda folder: Effect(1, upload, 200, 413),
    "device": lambda folder: Effect("cuda", is_served, True, False),  # none, or heads that it has no kernels for
    "files": lambda folder: Effect(False, upload, 200, 403),
    "files_quota": lambda folder: Effect(1, upload, 200, 413),
    "max_alternatives": lambda folder: Effect(0, alternatives, 200, 400),
    "max_characters": lambda folder: Effect(3, translate, 200, 400),
    "max_texts": lambda folder: Effect(1, lambda client: translate(client, "a", "b"), 200, 400),
    "memory": lambda folder: Effect(500_000, open_models, 2, 1),
    "page": lambda folder: Effect(False, lambda client: client.get("/").status, 200, 404),
    "request_seconds": lambda folder: Effect(0.001, is_served, True, False),
    "threads": lambda folder: Effect(3, threads_of_operators, 1, 3),
}
"""Settings of a server in this process, by name; those of batches are of ``batch``."""


@contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        yield other.getsockname()[1]


def check_bundles(folder: Path) -> None:
    with serving(folder / "en-fr", f"mine={folder / 'de-en'}") as client:
        assert [model["name"] for model in client.get("/v1/models").json["models"]] == ["en-fr", "mine"]


def check_host(folder: Path) -> None:
    for host in ("127.0.0.1", "127.0.0.2"):
        with bind(ServeSettings(bundles=(), host=host, port=0)) as listener:
            assert listener.getsockname()[0] == host


def check_port(folder: Path) -> None:
    with free_port() as port:
        pass
    with bind(ServeSettings(bundles=(), port=port)) as listener:
        assert listener.getsockname()[1] == port


PROCESS = {"bundles": check_bundles, "host": check_host, "port": check_port}
"""Settings of the process and its port."""
ELSEWHERE = {
    *("api_keys", "allowed_hosts", "max_beam", "max_body", "max_connections", "max_output_tokens", "max_sentences"),
    *("max_streams", "max_upload", "metrics_token", "rate_limit", "shutdown_seconds", "trusted_keys"),
    "trusted_proxies",
}
"""Settings whose effects other tests of this folder see."""

NAMES = sorted(
    [setting.name for setting in fields(ServeSettings) if setting.name != "batch"]
    + [f"batch.{limit.name}" for limit in fields(BatchLimits)]
)


def changed(name: str, value: Any) -> dict[str, Any]:
    return {"batch": BatchLimits(**{name.removeprefix("batch."): value})} if "." in name else {name: value}


@pytest.fixture(scope="module")
def seen_by_default(folder: Path) -> Iterator[Callable[[Callable[[Client], Any]], Any]]:
    """What a client of a server without settings sees."""
    with serving(folder) as client:
        yield cache(lambda seen: seen(client))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_every_setting_has_an_effect(
    folder: Path, tmp_path: Path, name: str, seen_by_default: Callable[[Callable[[Client], Any]], Any]
) -> None:
    assert name in EFFECTS.keys() | PROCESS.keys(), f"say what `{name}` changes"
    if name in PROCESS:
        PROCESS[name](folder)
        return
    effect = EFFECTS[name](tmp_path)
    if effect.default is not ... and effect.seen is not batches:
        assert seen_by_default(effect.seen) == effect.default
    elif effect.default is not ...:
        with serving(folder) as client:
            assert effect.seen(client) == effect.default
    with serving(folder, **changed(name, effect.value)) as client:
        assert effect.seen(client) == effect.changed


def test_options_reach_their_settings(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of any kind: the command line is made from the settings."""
    captured: list[ServeSettings] = []
    monkeypatch.setattr("edgeformer_server.server.serve", lambda settings, listener: captured.append(settings))
    monkeypatch.delenv("EDGEFORMER_METRICS_TOKEN", raising=False)
    values = ["--port", "0", "--memory", "3M", "--no-page", "--threads", "2", "--batch-sentences", "7"]
    hosts = ["--allowed-host", "a", "--allowed-host", "b"]
    succeeded("serve", small_bundle, *values, *hosts, "--batch-delay", "0.5")
    succeeded("serve", small_bundle, "--port", "0")
    assert captured == [
        ServeSettings(
            bundles=(str(small_bundle),),
            port=0,
            memory=3 * MIB,
            page=False,
            threads=2,
            allowed_hosts=("a", "b"),
            batch=BatchLimits(max_sentences=7, delay=0.5),
        ),
        ServeSettings(bundles=(str(small_bundle),), port=0),
    ]


@pytest.mark.parametrize("kind", [ServeSettings, BatchLimits])
def test_the_page_names_every_option_with_its_default_and_numbers_have_a_range(kind: type) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8").splitlines()
    for option in fields(kind):
        if (flag := option.metadata.get("flag")) is None:
            continue
        names = (f"`{flag}`", f"`--no-{flag.removeprefix('--')}`")
        (row,) = (line for line in page if line.startswith("| `--") and any(name in line for name in names))
        default: Any = option.default
        if not isinstance(default, bool) and default not in (None, "", ()):
            size = f"{default // MIB}M" if option.metadata.get("is_size") else f"{default}".removesuffix(".0")
            assert size in row.rsplit("|", 2)[1]
        for limit, step in ((option.metadata.get("low"), -1), (option.metadata.get("high"), 1)):
            if limit is not None:
                with pytest.raises(click.BadParameter, match="is not in the range"):
                    serve_command.make_context("serve", [flag, str(limit + step)])
                serve_command.make_context("serve", [flag, str(limit)])
