"""Compares translations of bundles on emulated processors with those on this one. See docs/precision.md.

Usage: ``python -m edgeformer_bench.studies.emulated_cpus BUNDLE... --source FILE --cpu Haswell``
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from edgeformer.data.text import read_lines
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table

EMULATOR = "qemu-x86_64"
WORKER = Path(__file__).with_name("emulated_worker.py")


def run_worker(python: Sequence[str], arguments: Sequence[str]) -> Any:
    """Start the worker with this Python command, and return its output.

    Raises:
        ClickException: the command does not exist or failed.
    """
    if shutil.which(python[0]) is None:
        raise click.ClickException(f"`{python[0]}` is not installed; on Debian and Ubuntu: apt install qemu-user.")
    done = subprocess.run([*python, str(WORKER), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise click.ClickException(f"`{shlex.join(python)}` exited with {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


@click.command(cls=Command)
@click.argument("bundles", metavar="BUNDLE...", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option(
    "--sentences", default=20, show_default=True, type=click.IntRange(1), help="Maximum number of lines to translate."
)
@click.option(
    "--beam", default=1, show_default=True, type=click.IntRange(1), help="Hypotheses kept per sentence; 1 is greedy."
)
@click.option(
    "--cpu", "cpus", multiple=True, help=f"Name of an x86 processor from `{EMULATOR} -cpu help`; may be repeated."
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Command that starts a Python that has the runtime; may be repeated.",
)
@click.option("--no-care", is_flag=True, help="Let integer products saturate, to see what that would do.")
def main(
    bundles: tuple[str, ...],
    source: Path,
    sentences: int,
    beam: int,
    cpus: tuple[str, ...],
    pythons: tuple[str, ...],
    no_care: bool,
) -> None:
    """Run golden examples and translate with each BUNDLE on emulated processors and on this one.

    Exits with status 1 if tokens differ or a golden example fails.
    """
    commands = _commands(cpus, pythons)
    columns = ("processor", "products", "bundle", "golden failed", "sentences differ", "largest score difference")
    rows, failed = table(f"Compared with this processor, beam {beam}", *columns), False
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "source.txt"
        lines.write_text("\n".join(read_lines(source)[:sentences]), encoding="utf-8")
        arguments = [str(lines), str(beam), *bundles]
        native = run_worker([sys.executable], arguments)["bundles"]
        for name, command in commands.items():
            emulated = run_worker(command, ["--no-care", *arguments] if no_care else arguments)
            for bundle, result in emulated["bundles"].items():
                same = [a == b for a, b in zip(native[bundle]["ids"], result["ids"], strict=True)]
                pairs = zip(native[bundle]["scores"], result["scores"], same, strict=True)
                difference = max((abs(a - b) for a, b, equal in pairs if equal), default=0.0)
                wrong = len(result["golden_problems"])
                rows.add_row(
                    name,
                    "saturate" if emulated["saturate"] else "exact",
                    Path(bundle).name,
                    f"{wrong} of {result['golden_cases']}",
                    f"{same.count(False)} of {len(same)}",
                    f"{difference:.1e}",
                )
                failed |= wrong > 0 or not all(same)
    console().print(rows)
    raise SystemExit(failed)


def _commands(cpus: Sequence[str], pythons: Sequence[str]) -> dict[str, list[str]]:
    """Return the commands that start Python on each processor, by processor name."""
    commands = {cpu: [EMULATOR, "-cpu", cpu, sys.executable] for cpu in cpus}
    for entry in pythons:
        name, _, command = entry.partition("=")
        if not command.strip():
            raise click.BadParameter(f"`{entry}` is not NAME=COMMAND.", param_hint="--python")
        commands[name] = shlex.split(command)
    if not commands:
        raise click.UsageError("Name a processor with --cpu or --python.")
    return commands


if __name__ == "__main__":
    main()
