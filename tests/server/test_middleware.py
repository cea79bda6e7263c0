"""What every response has, and what is measured."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Never

import pytest
from starlette.requests import Request

from edgeformer_server.metrics import Metrics
from edgeformer_server.queue.batching import BatchReport, QueueFullError
from tests.server.http import Answer, Client, logged_lines, serving, wait_until

TEXT = "The old dog runs."


@pytest.fixture(scope="module")
def client(bundle: Path) -> Iterator[Client]:
    with serving(bundle, access_log=True, max_body=1_000) as client:
        yield client


def upload(client: Client) -> Answer:
    answer = client.upload("/translate_file", "a.txt", TEXT.encode(), source="en", target="fr")
    return client.get(answer.json["translatedFileUrl"].removeprefix(client.url))


def responses(client: Client) -> dict[str, Answer]:
    """Responses of every kind."""
    return {
        "page": client.get("/"),
        "script": client.get("/page.js"),
        "translation": client.json("/v1/translate", {"texts": [TEXT], "source": "en", "target": "fr"}),
        "mistake": client.json("/v1/translate", {"texts": 1}),
        "missing": client.get("/none"),
        "preflight": client.ask("/translate", None, "OPTIONS"),
        "file": upload(client),
        "metrics": client.get("/metrics"),
        "too large": client.ask("/translate", b"x" * 1_001),
    }


def test_no_response_lacks_a_header_that_protects(client: Client) -> None:
    for name, answer in responses(client).items():
        headers = {key.lower(): value for key, value in answer.headers.items()}
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["referrer-policy"] == "no-referrer", name
        assert headers["access-control-allow-origin"] == "*", name
        assert headers["access-control-allow-headers"] == "Authorization, Content-Type", name
        assert headers["access-control-allow-methods"] == "GET, POST", name
        assert name != "preflight" or answer.status == 200
        assert "access-control-allow-credentials" not in headers, name
    policy = {key.lower(): value for key, value in client.get("/").headers.items()}["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert rule in policy.split("; ")
    assert "unsafe" not in policy


def test_every_request_has_an_id_of_its_own_which_the_log_has_too(client: Client) -> None:
    with logged_lines() as lines:
        ids = [client.get("/health").headers["x-request-id"] for _ in range(20)]
        wait_until(lambda: {json.loads(line)["id"] for line in lines} >= set(ids))  # written after the answer
    assert len(set(ids)) == len(ids)


def test_every_figure_of_a_batch_is_measured_as_itself() -> None:
    metrics = Metrics()
    figures = {"sentences": 3, "requests": 2, "source_tokens": 50, "target_tokens": 70, "seconds": 1.5, "waited": 0.25}
    metrics.add_batch(BatchReport(model="m", **figures))  # type: ignore[arg-type]  # as the fields are
    lines = metrics.text({"m": 11}).decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert {
        "sentences": values['edgeformer_batch_sentences_sum{model="m"}'],
        "requests": values['edgeformer_batch_requests_sum{model="m"}'],
        "seconds": values['edgeformer_batch_seconds_sum{model="m"}'],
        "waited": values['edgeformer_queue_seconds_sum{model="m"}'],
        "source_tokens": values['edgeformer_tokens_total{model="m",side="source"}'],
        "target_tokens": values['edgeformer_tokens_total{model="m",side="target"}'],
    } == {name: str(float(value)) for name, value in figures.items()}
    assert values['edgeformer_queue_sentences{model="m"}'] == "11.0"


TRANSLATION = {"texts": [TEXT], "source": "en", "target": "fr"}


REFUSED = [
    ("/v1/translate", {**TRANSLATION, "timeout": 1e-9}, 504),
    ("/v1/translate", {**TRANSLATION, "texts": 1}, 400),
    ("/v1/translate", {**TRANSLATION, "stream": True, "timeout": 1e-9}, 504),
    ("/translate", {"q": TEXT * 100, "source": "en", "target": "fr"}, 413),
    ("/none", {}, 404),
    ("/v1/translate", TRANSLATION, 503),
    ("/translate", {"q": TEXT, "source": "en", "target": "fr"}, 503),
]


def test_a_refused_request_leaves_nothing_to_the_garbage_collector(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(path: str, content: object, status: int) -> None:
        with monkeypatch.context() as patch:
            if status == 503:
                patch.setattr(client.context.service, "_batcher", is_full)
            for _ in range(5):
                with client.open(path, content) as response:
                    assert response.status == status

    for each in REFUSED:
        ask(*each)
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)  # what is collected from now on is in `gc.garbage`
    try:
        for each in REFUSED:
            ask(*each)
            gc.collect()
            left = [kept for kept in gc.garbage if isinstance(kept, (BaseException, Request, TracebackType))]
            assert not left, each
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def is_full(model: str) -> Never:
    raise QueueFullError(1)
