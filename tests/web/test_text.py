"""The cases of the text layer that Python and TypeScript share are those of today's text layer."""

from __future__ import annotations

import pytest

pytest.importorskip("sentencex", reason="the extra `text` is not installed")

from tests.web import text_cases


def test_the_cases_are_current() -> None:
    assert text_cases.FILE.read_text(encoding="utf-8") == text_cases.content(), (
        "the text layer changed: run `python -m tests.web.text_cases`, and change runtime/edgeformer-web/src/text too"
    )
