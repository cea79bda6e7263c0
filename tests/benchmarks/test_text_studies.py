"""The studies of final punctuation and of alternatives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer_bench.text import alternatives, period

TEXTS = ["The old dog runs near the sea.", "The machine sings.", "A small car.", "Who runs?"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "text").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return ["--source", str(tmp_path / "text"), "--reference", str(tmp_path / "text")]


def test_statements_are_translated_without_and_with_their_period(small_bundle: Path, files: list[str]) -> None:
    output = CliRunner().invoke(period.main, [str(small_bundle), *files]).output
    assert "3 statements" in output
    assert re.search(r"with it +│ +\d+\.\d", output)
    assert re.search(r"Log-probability: [+-]0\.\d{3} ± 0\.\d{3} \(3 statements\)\.", output)


def test_alternatives_are_counted_once_per_table(small_bundle: Path, files: list[str]) -> None:
    output = CliRunner().invoke(alternatives.main, [str(small_bundle), *files, "--alternatives", "2"]).output
    counts = [int(count) for count in re.findall(r"│ +(\d+) │ +\d+ │\n", output)]
    assert sum(counts[:4]) == sum(counts[4:]) == 2 * len(TEXTS)
