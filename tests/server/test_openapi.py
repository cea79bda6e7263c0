"""The description of the APIs is that of the code, and lists every endpoint and every status that one answers."""

from __future__ import annotations

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from edgeformer_server.app import ROUTES
from edgeformer_server.queue.batching import QueueFullError
from tests.describe_api import OPERATIONS, contents
from tests.server.http import Answer, Client, half_a_request, serving

PAIR = {"source": "en", "target": "fr"}
FIELDS: dict[str, dict[str, Any]] = {
    "/translate": {"q": "A dog.", **PAIR},
    "/detect": {"q": "A dog."},
    "/translate_file": {"content": "A dog.", **PAIR},
    "/v1/translate": {"texts": "A dog.", **PAIR},
}
WORK = {"/translate": "translate", "/translate_file": "translate_document", "/v1/translate": "translate"}
"""Methods of the service that routes wait for."""


@pytest.mark.parametrize("path", contents(), ids=lambda path: str(path.name))
def test_the_files_are_what_the_code_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == contents()[path], "run `python -m tests.describe_api`"


def test_every_endpoint_is_described() -> None:
    assert {route.path for route in ROUTES} == set(OPERATIONS)


def ask(client: Client, path: str, key: str = "good", text: str = "A dog.") -> Answer:
    fields = {name: text if value == "A dog." else value for name, value in FIELDS[path].items()}
    if path == "/translate_file":
        return client.upload(
            path, "a.txt", fields.pop("content").encode(), **fields, **({"api_key": key} if key else {})
        )
    if path == "/v1/translate":
        fields["texts"] = [text] if text else text
    return client.json(path, fields, **({"authorization": f"Bearer {key}"} if key else {}))


def late_status(client: Client, path: str) -> int:
    with half_a_request(client.url, path) as connection:
        answer = connection.recv(65536)
        while b"}" not in answer:
            answer += connection.recv(65536)
        assert b"did not arrive within 0.3 seconds" in answer
        return int(answer.split()[1])


def test_the_statuses_of_every_route_are_listed(bundle: Path, tmp_path: Path) -> None:
    seen = defaultdict[str, set[int]](set)
    (tmp_path / "keys").write_text("good\nslow 1\n", encoding="utf-8")
    limits: dict[str, Any] = {"max_body": 2000, "max_upload": 2000, "metrics_token": "token"}
    with serving(bundle, api_keys=tmp_path / "keys", **limits) as client:
        context = client.context
        for path in FIELDS:
            seen[path] |= {ask(client, path, key).status for key in ("good", "", "bad", "slow", "slow")}
            seen[path] |= {ask(client, path, text=text).status for text in ("", "x" * 3000)}
            with patch.object(context.access, "check", side_effect=RuntimeError):
                seen[path].add(ask(client, path).status)
            for error in (QueueFullError(1), TimeoutError()):
                if path in WORK:
                    with patch.object(context.service, WORK[path], side_effect=error):
                        seen[path].add(ask(client, path).status)
        seen["/metrics"].add(client.get("/metrics", authorization="Bearer token").status)
        url = ask(client, "/translate_file").json["translatedFileUrl"].removeprefix(client.url)
        for address in (url, "/download_file/x", f"/download_file/{'0' * 36}.txt"):
            seen["/download_file/{name}"].add(client.get(address).status)
        for path in ("/languages", "/frontend/settings", "/health", "/ready", "/v1/models", "/metrics"):
            seen[path].add(client.get(path).status)
        with patch.object(context.service.workspace, "catalog", side_effect=RuntimeError):
            for path in ("/languages", "/frontend/settings", "/v1/models"):
                seen[path].add(client.get(path).status)
        context.is_draining = True
        ready = client.get("/ready")
        assert ready.json == {"status": "draining"}
        seen["/ready"].add(ready.status)
        operations = json.loads(client.get("/openapi.json").body)["paths"].items()
    with serving(bundle, request_seconds=0.3) as client, ThreadPoolExecutor() as pool:
        for path, late in zip(FIELDS, pool.map(lambda path: late_status(client, path), FIELDS), strict=True):
            seen[path].add(late)
    listed = {
        path: {int(status) for each in methods.values() for status in each["responses"]} for path, methods in operations
    }
    assert listed == {path: seen[path] for path in listed}
    assert seen["/translate"] == {200, 400, 403, 408, 413, 429, 500, 503, 504}
    assert seen["/v1/translate"] == seen["/translate"] | {401}
