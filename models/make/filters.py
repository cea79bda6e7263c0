"""What the models in the box are trained on: the digits that both sides must have, and the spaces of French
punctuation."""

from __future__ import annotations

import re

from edgeformer.data.text import Pair


def has_same_digits(pair: Pair) -> bool:
    """Whether both sides have each digit equally often; otherwise one may have "18" and the other "eighteen"."""
    source, target = (sorted(re.findall(r"\d", side)) for side in pair)
    return source == target


_NARROW, _WIDE = "\u202f", "\u00a0"
_SPACES = f"[ {_NARROW}{_WIDE}]*"
_RULES = (  # guillemets first: their spaces are what the others look for
    (re.compile(rf"«{_SPACES}"), "«" + _WIDE),
    (re.compile(rf"{_SPACES}»"), _WIDE + "»"),
    (re.compile(rf"(?<=[^\s?!;:(/.]){_SPACES}([?!;]+)(?=$|[\s»\")\]])"), _NARROW + r"\1"),
    (re.compile(rf"(?<=\w){_SPACES}:(?=\s|$)"), _WIDE + ":"),
)


def french_spaces(text: str) -> str:
    """Put a narrow no-break space before ``?``, ``!`` and ``;``, and no-break spaces before colons and in guillemets.

    Question marks and the like inside words, as in addresses, are left alone.
    """
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
