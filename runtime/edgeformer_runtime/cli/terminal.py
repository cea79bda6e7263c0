"""What a terminal may be sent."""

from __future__ import annotations

import re

import click

_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters other than tab and line feed, separators of lines, and what reverses the text after it."""


def visible(text: str) -> str:
    r"""Write characters that command a terminal, or hide what is printed, as in ``\u001b``.

    Names in a bundle and output of a model are anyone's text. JSON stays the same JSON.
    """
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line of :func:`visible` text on standard output or standard error."""
    click.echo(visible(text), err=err)  # noqa: TID251  # the one place that may
