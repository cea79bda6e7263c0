"""What the commands of this package share: how they fail, how reports name them, and how they run ``edgeformer``."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from edgeformer_runtime.cli.output import console
from edgeformer_runtime.errors import EdgeformerError


class CommandError(EdgeformerError):
    """An ``edgeformer`` command failed."""


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


def edgeformer(*arguments: str | Path, capture: bool = False) -> str:
    """Print and run a command; after Ctrl-C, wait until it has saved, then stop.

    Raises:
        CommandError: the command failed.
    """
    words = ["edgeformer", *map(str, arguments)]
    console().print(f"\n$ {shlex.join(words)}", style="bold cyan")
    program, interrupted = Path(sys.executable).with_name("edgeformer"), False
    with subprocess.Popen([program, *words[1:]], text=True, stdout=subprocess.PIPE if capture else None) as process:
        while True:
            try:
                output, _ = process.communicate()
                break
            except KeyboardInterrupt:
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if process.returncode:
        raise CommandError(f"`edgeformer {words[1]}` failed with exit code {process.returncode}")
    return output or ""


def evaluate(model: Path, data: Path) -> dict[str, Any]:
    """Measure scores and times of a run or a bundle on the test set of a prepared corpus, greedy, on one thread."""
    files = ("--source", data / "test.en", "--reference", data / "test.fr")
    result: dict[str, Any] = json.loads(
        edgeformer("evaluate", model, *files, "--beam", "1", "--threads", "1", "--json", capture=True)
    )
    return result
