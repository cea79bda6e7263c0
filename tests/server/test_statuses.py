"""The description of the API lists every status that a route answers, and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeformer_server.queue.batching import QueueFullError
from tests.server.http import Answer, Client, half_a_request, serving

PAIR = {"source": "en", "target": "fr"}
FIELDS: dict[str, dict[str, Any]] = {
    "/translate": {"q": "A dog.", **PAIR},
    "/detect": {"q": "A dog."},
    "/translate_file": PAIR,
    "/v1/translate": {"texts": ["A dog."], **PAIR},
}
WORK = {"/translate": "translate", "/translate_file": "translate_document", "/v1/translate": "translate"}
"""Methods of the service that routes wait for."""
Statuses = dict[str, set[str]]


@pytest.fixture(scope="module")
def statuses(bundle: Path, folder: Path) -> Statuses:
    """Statuses that routes were seen to answer."""
    (folder / "keys").write_text("good\nslow 1\n", encoding="utf-8")
    seen: Statuses = defaultdict(set)
    settings: dict[str, Any] = {
        "api_keys": folder / "keys",
        "max_body": 2000,
        "max_upload": 2000,
    }
    with serving(bundle, metrics_token="token", **settings) as client:
        for path in FIELDS:
            for status in answers(client, path):
                seen[path].add(str(status))
        for path in ("/languages", "/frontend/settings", "/health", "/ready", "/v1/models", "/metrics"):
            seen[path].add(str(client.get(path).status))
        seen["/metrics"].add(str(client.get("/metrics", authorization="Bearer token").status))
        url = ask(client, "/translate_file", "good").json["translatedFileUrl"].removeprefix(client.url)
        for address in (url, "/download_file/x", f"/download_file/{'0' * 36}.txt"):
            seen["/download_file/{name}"].add(str(client.get(address).status))
        with broken(client.context.service.workspace, "catalog", RuntimeError()):
            for path in ("/languages", "/frontend/settings", "/v1/models"):
                seen[path].add(str(client.get(path).status))
        client.context.is_draining = True
        ready = client.get("/ready")
        assert ready.json == {"status": "draining"}
        seen["/ready"].add(str(ready.status))
    with serving(bundle, request_seconds=0.3) as client, ThreadPoolExecutor() as pool:
        for path, late in zip(FIELDS, pool.map(lambda path: late_status(client, path), FIELDS), strict=True):
            seen[path].add(late)
    return seen


def ask(client: Client, path: str, key: str, **changes: Any) -> Answer:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    fields = {**FIELDS[path], **changes}
    if path != "/translate_file":
        return client.json(path, fields, **headers)
    return client.upload(path, "a.txt", fields.pop("content", b"A dog."), **fields, **({"api_key": key} if key else {}))


def answers(client: Client, path: str) -> Iterator[int]:
    """Statuses of a route, one after the other."""
    yield ask(client, path, "good").status
    yield ask(client, path, "").status
    yield ask(client, path, "bad").status
    yield ask(client, path, "slow").status
    yield ask(client, path, "slow").status
    name = "texts" if path.startswith("/v1") else "content" if path == "/translate_file" else "q"
    yield ask(client, path, "good", **{name: b"" if name == "content" else ""}).status
    large: Any = "x" * 3000
    yield ask(client, path, "good", **{name: large.encode() if name == "content" else large}).status
    with broken(client.context.access, "check", RuntimeError()):
        yield ask(client, path, "good").status
    if path in WORK:
        for error in (QueueFullError(1), TimeoutError()):
            with broken(client.context.service, WORK[path], error):
                yield ask(client, path, "good").status


@contextmanager
def broken(owner: object, name: str, error: Exception) -> Iterator[None]:
    """Within the block, a method fails."""

    async def fails_later() -> None:
        raise error

    def fails(*args: object, **kwargs: object) -> object:
        if name in WORK.values():
            return fails_later()
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fails)
        yield


def late_status(client: Client, path: str) -> str:
    with half_a_request(client.url, path) as connection:
        answer = connection.recv(65536)
        while b"}" not in answer:
            answer += connection.recv(65536)
        assert b"did not arrive within 0.3 seconds" in answer
        return answer.decode().split()[1]


def test_the_statuses_of_every_route_are_listed(bundle: Path, statuses: Statuses) -> None:
    with serving(bundle) as client:
        paths = client.get("/openapi.json").json["paths"]
    listed = {
        path: set(operation["responses"]) for path, operations in paths.items() for operation in operations.values()
    }
    assert listed == {path: statuses[path] for path in listed}
    assert statuses["/translate"] == {"200", "400", "403", "408", "413", "429", "500", "503", "504"}
    assert statuses["/v1/translate"] == statuses["/translate"] | {"401"}
