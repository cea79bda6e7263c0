"""The study of numbers compares digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeformer_bench.text.numbers import has_same_digits, main


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("It costs 1,250.50.", "Cela coûte 1\u202f250,50.", True),
        ("12/31/2020", "31.12.2020", True),
        ("In 1985", "En 1895", False),
        ("3 dogs", "trois chiens", False),
        ("3 dogs", "3 3 chiens", False),
    ],
)
def test_digits_are_compared_without_separators(source: str, target: str, expected: object) -> None:
    assert has_same_digits(source, target) is expected


def test_sentences_with_digits_are_translated_twice(small_bundle: Path, tmp_path: Path) -> None:
    lines = [f"The dog runs {number} times." for number in (3, 57, 112)]
    (tmp_path / "text").write_text("\n".join([*lines, "The sea."]) + "\n", encoding="utf-8")
    arguments = [str(small_bundle), "--source", str(tmp_path / "text"), "--reference", str(tmp_path / "text")]
    output = CliRunner().invoke(main, arguments).output
    assert "3 sentences" in output
    assert re.search(r"reference +│ +100\.0%", output)
    assert re.search(r"│ checked +│ +100\.0% +│ +0\.0%", output), output
