"""Where figures come from: what reports say about the command that made them."""

from __future__ import annotations

import shlex
import sys

import click


def command_line() -> str:
    """The command that is running, as a user would type it again."""
    return f"{click.get_current_context().command_path} {shlex.join(sys.argv[1:])}".rstrip()
