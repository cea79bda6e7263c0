"""What Python and TypeScript share is that of today's Python: texts, tokenizers and the schema."""

from __future__ import annotations

import pytest

pytest.importorskip("sentencex", reason="the extra `text` is not installed")
pytest.importorskip("sentencepiece", reason="the extra `sentencepiece` is not installed")
pytest.importorskip("babel", reason="texts to compare on are those of tests/spm.py")

from tests.web import schema, text_cases, tokenizer_cases


@pytest.mark.parametrize("name", ["text", "tokenizer"])
def test_the_cases_are_current(name: str) -> None:
    cases = {"text": text_cases, "tokenizer": tokenizer_cases}[name]
    assert cases.FILE.read_text(encoding="utf-8") == cases.content(), (
        f"it changed: run `python -m tests.web.{name}_cases`, and change runtime/edgeformer-web/src/{name} too"
    )


def test_the_schema_is_current() -> None:
    assert schema.FILE.read_text(encoding="utf-8") == schema.content(), "it changed: run `python -m tests.web.schema`"
