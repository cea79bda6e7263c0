"""What the programs that test promises of the server have in common: options, requests, and how they end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Protocol

import click

from edgeformer_bench.commands import Command, command_line
from edgeformer_bench.load.serving import Phrases, Serving, request_bytes, serving, translation_fields
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.selfcheck.machine import machine_summary

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
_COMMON = (
    click.argument("bundle", type=click.Path(path_type=Path)),
    click.option("--clients", default=32, show_default=True, type=click.IntRange(1), help="Clients that send."),
    click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes of the server."),
    click.option(
        "--source",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Text that phrases of 3 to 8 words are taken from, one sentence per line. Default: a small one.",
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of all random choices."),
)

Make = Callable[..., bytes]
"""Makes a request to translate a random phrase; keywords are further fields of the request."""


class Result(Protocol):
    """What a program measured."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""

    def rows(self) -> list[tuple[str, str]]:
        """Figures and their names, for people."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The server, and what is sent to it."""

    bundle: Path
    clients: int
    workers: int
    source: Path | None
    seed: int

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[Serving, Make]]:
        """Start the server, and make requests for it."""
        phrases = Phrases(self.source, self.seed)
        with serving(self.bundle, "--threads", "1", "--workers", str(self.workers), *arguments) as server:
            fields = translation_fields(server)
            yield server, lambda **more: request_bytes([phrases.next()], {**fields, **more})


def promise(program: Callable[..., Result]) -> click.Command:
    """Make a command of a program that takes a :class:`Setup` and options of its own."""

    for option in reversed((*_COMMON, json_option)):
        option(program)

    @click.command(cls=Command)
    @wraps(program)
    def command(as_json: bool, **options: Any) -> None:
        setup = Setup(**{name: options.pop(name) for name in Setup.__dataclass_fields__})
        conclude({"": program(setup, **options)}, as_json=as_json)

    return command


def conclude(results: Mapping[str, Result], *, as_json: bool) -> None:
    """Print results by name and end the process: with status 1 if a promise is broken."""
    problems = [
        f"{name}: {problem}" if name else problem for name, each in results.items() for problem in each.problems
    ]
    if as_json:
        print_json({"command": command_line(), "machine": machine_summary(), "problems": problems, "results": results})
    else:
        rows = table(command_line(), "", *results)
        columns = [dict(result.rows()) for result in results.values()]
        for what in columns[0]:
            rows.add_row(what, *(column[what] for column in columns))
        console().print(rows)
    for problem in problems:
        console(stderr=True).print(f"BROKEN {problem}", style="red")
    console(stderr=True).print("Some promises are broken." if problems else "All promises are kept.")
    sys.exit(1 if problems else 0)


def logged(errors: list[str]) -> list[str]:
    """Errors in the server's log, as problems."""
    return [f"the server logged {error}" for error in errors[:5]]
