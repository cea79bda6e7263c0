"""The description of the APIs is that of the code, and lists every endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer_server.app import ROUTES
from tests.describe_api import OPERATIONS, contents


@pytest.mark.parametrize("path", contents(), ids=lambda path: str(path.name))
def test_the_files_are_what_the_code_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == contents()[path], "run `python -m tests.describe_api`"


def test_every_endpoint_is_described() -> None:
    assert {route.path for route in ROUTES} == set(OPERATIONS)
