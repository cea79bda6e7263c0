"""The command line, ``edgeformer COMMAND``. Commands are found through entry points and imported when they are used."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import click

import edgeformer
from edgeformer_runtime.cli.terminal import echo
from edgeformer_runtime.errors import EdgeformerError, missing_package

if "OMP_WAIT_POLICY" not in os.environ:
    # Read when torch loads OpenMP: how often an idle thread looks for work before it sleeps. By default 300,000 times,
    # so that beside a busy process threads wait for each other most of the time; threads that sleep at once are woken
    # for each of training's small operators. Set here since every command is imported after this module.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")


class CommandGroup(click.Group):
    """Loads commands on demand, and prints a user's mistake as one line with exit status 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all installed commands, sorted."""
        return sorted(entry.name for entry in entry_points(group="edgeformer.commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; an unknown name becomes click's usage error."""
        matches = entry_points(group="edgeformer.commands", name=cmd_name)
        if not matches:
            return None
        command = next(iter(matches)).load()
        if not isinstance(command, click.Command):
            raise TypeError(f"Entry point `{cmd_name}` of edgeformer.commands must be a click command.")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prepare the streams, and print the help or the version if they are asked for."""
        _replace_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # characters that the stream cannot encode become ?
                stream.reconfigure(errors="replace")
        with _errors_as_sentences():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _errors_as_sentences(), _ended_by_sigterm():
            return super().invoke(ctx)


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """Print known errors without a traceback, and exit with status 1."""
    try:
        yield
        return
    except EdgeformerError as error:
        echo(f"Error: {error}", err=True)
    except ModuleNotFoundError as error:
        extra = EXTRA_OF_MODULE.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        echo(f"Error: {missing_package('This command', error.name, extra)}", err=True)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        raise  # the reader closed the pipe; click ends quietly
    except OSError as error:
        echo(f"Error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}.", err=True)
    except MemoryError:
        echo("Error: not enough memory; try a smaller --beam or --batch-tokens.", err=True)
    sys.exit(1)


def _replace_closed_streams() -> None:
    """Let what the shell closed (``>&-``) be the null device, so that no file is opened in its place.

    Exits with status 1 if there is nowhere to write results to.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        echo("Error: Standard output is closed; send it to a file, or to /dev/null.", err=True)
        sys.exit(1)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command like an error does, so that temporary files are removed."""

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


EXTRA_OF_MODULE = {
    "babel": "train",
    "google": "import",
    "huggingface_hub": "import",
    "lightning_fabric": "train",
    "lxml": "text",
    "matplotlib": "plot",
    "onnx": "export",
    "onnx_ir": "export",
    "onnxruntime": "cpu",
    "onnxscript": "export",
    "onnxsim": "export",
    "packaging": "import",
    "requests": "train",
    "sacrebleu": "eval",
    "safetensors": "train",
    "sentencepiece": "import",
    "torch": "train",
    "yaml": "import",
    "zstandard": "import",
}


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(edgeformer.__version__, prog_name="edgeformer")
def main() -> None:
    """Train, export, verify and run encoder-decoder models on the edge."""
