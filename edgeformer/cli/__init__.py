"""The command line: ``edgeformer COMMAND``; commands are found by name through entry points and imported on use."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import click

import edgeformer
from edgeformer_runtime.errors import EdgeformerError


class CommandGroup(click.Group):
    """Loads a command when it is asked for, and turns a user's mistake into one line and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all installed commands, sorted."""
        return sorted(entry.name for entry in entry_points(group="edgeformer.commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; unknown names give click's usage error."""
        found = entry_points(group="edgeformer.commands", name=cmd_name)
        if not found:
            return None
        command = next(iter(found)).load()
        if not isinstance(command, click.Command):
            raise TypeError(f"Entry point `{cmd_name}` of edgeformer.commands must be a click command.")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; print known errors without a traceback."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal or pipe that cannot show a character gets a ? for it
                stream.reconfigure(errors="replace")
        try:
            with _ended_by_sigterm():
                return super().invoke(ctx)
        except EdgeformerError as error:
            click.echo(f"Error: {error}", err=True)
        except ModuleNotFoundError as error:
            extra = _EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            click.echo(f"Error: this command needs `{error.name}`: pip install 'edgeformer[{extra}]'.", err=True)
        except BrokenPipeError:
            raise  # whoever reads our output has seen enough; click ends quietly
        except OSError as error:
            click.echo(f"Error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}.", err=True)
        except MemoryError:
            click.echo("Error: not enough memory; give a smaller --beam or --batch-tokens.", err=True)
        sys.exit(1)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as an error does, so that nothing half-written stays behind."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_EXTRA_OF_MODULE = {
    "babel": "train",
    "lightning_fabric": "train",
    "onnx": "export",
    "onnx_ir": "export",
    "onnxscript": "export",
    "onnxsim": "export",
    "sacrebleu": "eval",
    "safetensors": "train",
    "torch": "train",
}


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(edgeformer.__version__, prog_name="edgeformer")
def main() -> None:
    """Train, export, verify and run encoder-decoder models on the edge."""
