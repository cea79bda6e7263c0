"""Lets the documentation site show docstrings as written: Sphinx roles become the names that they refer to."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|data|func|meth|mod|attr|exc):`(~?)([^`]+)`")
_LITERAL_BLOCK = re.compile(r"::\n\n((?:    .*\n?|\n)+)")


class Roles(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace roles by code, and the ``::`` before a literal block by a colon."""
        if obj.docstring is not None:
            text = _ROLE.sub(lambda role: f"`{role[2].split('.')[-1] if role[1] else role[2]}`", obj.docstring.value)
            obj.docstring.value = _LITERAL_BLOCK.sub(lambda block: f":\n\n{block[1]}", text)
