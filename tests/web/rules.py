"""Rules of the text layer by example, which Python and TypeScript share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RULES: dict[str, list[Any]] = json.loads((Path(__file__).parent / "cases" / "rules.json").read_bytes())
"""Cases by rule: what goes in, and what must come out."""


def as_lines(cases: list[dict[str, Any]]) -> str:
    """The content of a file of recorded cases, one a line."""
    parts = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    return f"[\n{parts}\n]\n"
