"""What is put in place of something else: names, cities, placeholders and emoji."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def entries(name: str) -> list[str]:
    """Return a list of ``tables.toml``."""
    return str(_tables()[name]).split()


def name_forms() -> dict[str, str]:
    """Return the given names that occur in another form in translations."""
    return dict(_tables()["forms"])


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "tables.toml").read_text(encoding="utf-8"))
