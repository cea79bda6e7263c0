"""Requests that the server's own description of its API allows and forbids, and that a planted defect is noticed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.amounts import cases
from tests.server.http import Client, serving
from tests.store import COMMITTED

MAIN = ("/v1/translate", "/translate")
SHARE = 0.4
"""Share of the cases that are for each of the main operations."""
CHECKS = [status_code_conformance, content_type_conformance, response_headers_conformance, response_schema_conformance]
"""What every answer must conform to."""
INSIDES = re.compile(
    r"Traceback|site-packages|\.py\b|File \"|\b[A-Z]\w+(?:Error|Exception)\b|edgeformer_runtime"
    r"|/(?:home|root|tmp|usr|work)/|0x[0-9a-f]{8,}|could not be used"
)
"""What only the server's insides contain, and what a client is told of an internal error."""
SECONDS = 30.0
"""Time limit of a request."""

Defects = dict[tuple[str, str], str]
"""For each operation and what is wrong with an answer, a command that shows it."""


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(f"en-fr={COMMITTED / 'int8'}", request_seconds=10) as client:
        yield client


def test_every_answer_is_as_documented(client: Client) -> None:
    counts, defects = fuzz(client.url, cases(30, 100))
    assert defects == {}
    assert min(counts["POST /v1/translate", status] for status in ("200", "400")) > 1
    assert counts["POST /translate", "200"]
    assert {operation for operation, _ in counts} >= {"GET /health", "POST /detect"}


def test_internal_errors_and_insides_are_defects(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("edgeformer_server.access.Access.check", fail)
    monkeypatch.setattr("edgeformer_server.languages.language_name", lambda code: "/tmp/secret")
    found = {}
    with requests.Session() as session:
        for operation in operations_of(client.url):
            if operation.label in ("POST /detect", "GET /languages"):
                case = operation.Case(body={"q": "A dog."}, media_type="application/json")
                found[operation.label] = _checked(case, case.as_curl_command(), session)
    assert found["POST /detect"] == ("500", ["internal error", "insides of the server: could not be used"])
    assert found["GET /languages"] == ("200", ["insides of the server: /tmp/"])


def operations_of(url: str) -> list[Any]:
    parsed: Iterable[Any] = schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations()
    return [result.ok() for result in parsed]


def fuzz(url: str, count: int) -> tuple[Counter[tuple[str, str]], Defects]:
    """Send requests to a server; return the number of answers by operation and status, and the defects."""
    counts, defects = Counter[tuple[str, str]](), Defects()
    operations = operations_of(url)
    rest = (1 - SHARE * len(MAIN)) / (len(operations) - len(MAIN))
    with requests.Session() as session:
        for number, operation in enumerate(operations):

            @seed(number)
            @settings(
                max_examples=max(1, round(count * (SHARE if operation.path in MAIN else rest))),
                deadline=None,
                database=None,
                phases=[Phase.generate],
                verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=_strategy(operation))
            def send(case: Case[Any]) -> None:
                label, command = case.operation.label, case.as_curl_command()
                status, found = _checked(case, command, session)
                counts[label, status] += 1
                for what in found:
                    defects.setdefault((label, what), command)

            send()
    return counts, defects


def _strategy(operation: Any) -> st.SearchStrategy[Case[Any]]:
    """Requests of an operation: a third of them as its description says, a third of them with languages that the server
    has as well, without which nothing is translated, and a third not as it says, if there is a way not to be."""
    allowed: st.SearchStrategy[Case[Any]] = operation.as_strategy(GenerationMode.POSITIVE)
    if not operation.body and not list(operation.iter_parameters()):
        return allowed
    forbidden: st.SearchStrategy[Case[Any]] = operation.as_strategy(GenerationMode.NEGATIVE)
    return st.one_of(allowed, allowed.map(_with_languages), forbidden)


def _with_languages(case: Case[Any]) -> Case[Any]:
    if isinstance(case.body, dict):
        kept = {name: value for name, value in case.body.items() if name not in ("model", "format", "alternatives")}
        case.body = {**kept, "source": "en", "target": "fr"}
    return case


def _checked(case: Case[Any], command: str, session: requests.Session) -> tuple[str, list[str]]:
    """Send a case; returns the status, and what is wrong with the answer."""
    try:
        response = case.call(session=session, timeout=SECONDS)
    except requests.RequestException as error:
        return "none", [f"no answer ({type(error).__name__})"]
    found, body = list[str](), response.content.decode("utf-8", "replace")
    if response.status_code == 500:
        found.append("internal error")
    leak = INSIDES.search(body)
    if leak is not None and leak[0] not in command:
        found.append(f"insides of the server: {leak[0]}")
    is_forbidden = case.operation.path == "/v1/translate"  # LibreTranslate takes more than is described
    try:
        case.validate_response(response, checks=[*CHECKS, *([negative_data_rejection] if is_forbidden else [])])
    except FailureGroup as group:
        found += [
            f"{each.title}: {each.message}" if isinstance(each, Failure) else str(each) for each in group.exceptions
        ]
    return str(response.status_code), found
