"""Requests that the server's own description of its API allows and forbids, and that a planted defect is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeformer_runtime.serve.service import Service
from robustness.fuzz import fuzz
from tests.runtime.serve.http import Client, serving
from tests.store import COMMITTED


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(f"en-fr={COMMITTED / 'int8'}", request_seconds=10, suggestions=tmp_path / "suggestions") as client:
        yield client


def test_every_answer_is_as_documented(client: Client) -> None:
    report = fuzz(client.url, 100, 0)
    assert report.defects == []
    counts = report.counts
    assert counts["POST /v1/translate"]["200"] > 3
    assert counts["POST /v1/translate"]["400"] > 10
    assert counts["POST /translate"]["200"] > 1
    assert {name for name, statuses in counts.items() if sum(statuses.values())} >= {"GET /health", "POST /detect"}


def test_internal_errors_and_insides_are_defects(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Service, "translate", fail)
    monkeypatch.setattr("edgeformer_runtime.serve.languages.language_name", lambda code: "/tmp/secret")
    found = {(defect.operation, defect.what) for defect in fuzz(client.url, 60, 0).defects}
    assert ("POST /v1/translate", "internal error") in found
    assert ("GET /languages", "insides of the server: /tmp/") in found
