"""Provenance of results: the command that produced a report."""

from __future__ import annotations

import shlex
import sys

import click


def command_line() -> str:
    """Return the running command as a user would type it."""
    return f"{click.get_current_context().command_path} {shlex.join(sys.argv[1:])}".rstrip()
