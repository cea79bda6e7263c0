"""Sends a server requests that its own description of its API allows and forbids, and checks every answer.

Usage: ``python -m robustness.fuzz``
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec
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

from edgeformer_bench.commands import Command
from edgeformer_bench.load.report import conclude, json_option
from edgeformer_bench.load.serving import serving
from edgeformer_runtime.cli.output import counting
from tests.store import COMMITTED

DOCUMENT = "/openapi.json"
"""What describes the API."""
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
MAX_DEFECTS = 50


class Defect(msgspec.Struct, frozen=True):
    """Something that must not happen."""

    operation: str
    what: str
    request: str
    """A command that shows it."""


class Report(msgspec.Struct):
    """What was sent, and what came back."""

    counts: dict[str, dict[str, int]] = {}
    """Number of answers by operation and status."""
    defects: list[Defect] = []
    errors: list[str] = []
    """What the server logged."""

    @property
    def problems(self) -> list[str]:
        """Everything that must not happen."""
        found = [f"{defect.operation}: {defect.what}\n{defect.request}" for defect in self.defects]
        return [*found, *(f"the server logged {line}" for line in self.errors[:5])]

    def rows(self) -> list[tuple[str, str]]:
        """Number of answers by status for each operation, for people."""
        return [
            (operation, ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())))
            for operation, statuses in sorted(self.counts.items())
        ]

    def add(self, operation: str, outcome: str, defects: list[Defect]) -> None:
        """Count an answer; of defects that look the same, the first is kept."""
        statuses = self.counts.setdefault(operation, {})
        statuses[outcome] = statuses.get(outcome, 0) + 1
        known = {(defect.operation, defect.what) for defect in self.defects}
        fresh = [defect for defect in defects if (defect.operation, defect.what) not in known]
        self.defects += fresh[: MAX_DEFECTS - len(self.defects)]


def fuzz(url: str, cases: int, random_seed: int, progress: Callable[[int, int], None] | None = None) -> Report:
    """Send requests to a running server."""
    report = Report()
    parsed: Iterable[Any] = schemathesis.openapi.from_url(url + DOCUMENT).get_all_operations()
    operations = [result.ok() for result in parsed]
    rest = (1 - SHARE * len(MAIN)) / (len(operations) - len(MAIN))
    with requests.Session() as session:
        for number, operation in enumerate(operations):
            count = max(1, round(cases * (SHARE if operation.path in MAIN else rest)))
            strategy = _strategy(operation)

            @seed(random_seed + number)
            @settings(
                max_examples=count,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def send(case: Case[Any]) -> None:
                report.add(*_checked(case, session))
                if progress is not None:
                    sent = sum(sum(statuses.values()) for statuses in report.counts.values())
                    progress(min(sent, cases), cases)

            send()
    return report


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


def _checked(case: Case[Any], session: requests.Session) -> tuple[str, str, list[Defect]]:
    """Send a case; returns its operation, the status, and what is wrong with the answer."""
    operation, command = case.operation.label, case.as_curl_command()
    try:
        response = case.call(session=session, timeout=SECONDS)
    except requests.RequestException as error:
        return operation, "none", [Defect(operation, f"no answer ({type(error).__name__})", command)]
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
    return operation, str(response.status_code), [Defect(operation, what, command) for what in found]


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--cases", default=10_000, show_default=True, type=click.IntRange(20), help="Requests to send.")
@click.option("--seed", "random_seed", default=0, show_default=True, help="Seed of their contents.")
@click.option("--url", help="Address of a server that runs already. Default: starts one.")
@json_option
def main(bundle: Path | None, cases: int, random_seed: int, url: str | None, as_json: bool) -> None:
    """Send `edgeformer serve` requests that /openapi.json allows and forbids.

    BUNDLE must translate from English to French; by default, it is a small one with random weights. Exits with 1 if
    a request gets no answer, an internal error, a status or content that it does not mention, or text of the
    server's insides, or if the server logs an error.
    """
    with ExitStack() as stack:
        server = None
        if url is None:
            where = f"en-fr={bundle or COMMITTED / 'int8'}"
            server = stack.enter_context(serving(where, "--threads", "1", "--timeout", str(SECONDS / 2)))
            url = f"http://127.0.0.1:{server.port}"
        progress = stack.enter_context(counting("requests"))
        progress(0, cases)
        report = fuzz(url, cases, random_seed, progress)
        report.errors = server.errors() if server else []
    conclude({"answers": report}, as_json=as_json)


if __name__ == "__main__":
    main()
