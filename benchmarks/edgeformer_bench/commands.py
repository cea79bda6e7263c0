"""Shared parts of this package's commands: errors, and the command line for reports."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from edgeformer_runtime.errors import EdgeformerError


class Command(click.Command):
    """A command that prints a user's mistake as one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except EdgeformerError as error:
            raise click.ClickException(str(error)) from None


def command_line() -> str:
    """Return the running command as a user would type it."""
    return f"{click.get_current_context().command_path} {shlex.join(sys.argv[1:])}".rstrip()
