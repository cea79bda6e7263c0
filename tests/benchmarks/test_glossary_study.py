"""The study of glossaries counts what a translation has."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from click.testing import CliRunner

from edgeformer_bench.text.glossary import main, realized


def test_terms_count_as_often_as_they_are_wanted() -> None:
    wanted = Counter({"chien": 2, "la mer": 1})
    assert realized(wanted, "Le chien et la mer et la mer.") == 2
    assert realized(wanted, "Chien, chien, chien, lac.") == 2
    assert realized(wanted, "chienne la merveille") == 0


def test_every_term_is_realized_with_the_glossary(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "terms").write_text("dog\ttoutou\nsea\tocéan\n", encoding="utf-8")
    (tmp_path / "text").write_text("The old dog runs near the sea.\nThe machine.\nThe dog sings.\n", encoding="utf-8")
    arguments = [str(small_bundle), "--source", str(tmp_path / "text"), "--glossary", str(tmp_path / "terms")]
    output = CliRunner().invoke(main, arguments).output
    assert "2 sentences, 3 terms" in output
    assert re.search(r"with it +│ +3 │ 100\.0%", output)
    assert re.search(r"without the glossary +│ +0 │ +0\.0%", output)
