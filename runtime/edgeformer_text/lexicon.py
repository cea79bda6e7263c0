"""Words, signs and patterns that Python and TypeScript share: ``lexicon.json``, described where they are used.

Patterns are regular expressions in Python's syntax that JavaScript reads, too, after ``text/patterns.ts`` has replaced
its character classes: without possessive quantifiers, and with characters above U+FFFF as such.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

LEXICON: dict[str, Any] = json.loads(files(__package__).joinpath("lexicon.json").read_bytes())


def base_code(language: str) -> str:
    """The language of a code without script and region, by which the lexicon has it: ``hi`` for ``hin_Deva``."""
    code = re.split("[-_]", language)[0]
    if len(code) != 3 or not (code.isascii() and code.isalpha()):
        return code
    from langcodes import Language  # most codes have two letters

    return Language.get(code).prefer_macrolanguage().language or code


def split_names(text: str) -> frozenset[str]:
    """Split a list of names."""
    return frozenset(text.split())
