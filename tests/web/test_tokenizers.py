"""The cases of tokenizers that Python and TypeScript share are those of today's tokenizers."""

from __future__ import annotations

import pytest

pytest.importorskip("sentencepiece", reason="the extra `sentencepiece` is not installed")
pytest.importorskip("babel", reason="texts to compare on are those of tests/spm.py")

from tests.web import tokenizer_cases


def test_the_cases_are_current() -> None:
    assert tokenizer_cases.FILE.read_text(encoding="utf-8") == tokenizer_cases.content(), (
        "a tokenizer changed: run `python -m tests.web.tokenizer_cases`, and change edgeformer-web/src/tokenizer"
    )
