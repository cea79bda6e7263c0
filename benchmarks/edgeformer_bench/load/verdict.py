"""What the programs that test promises of the server have in common: options, and how they end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

import click

from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.selfcheck.machine import machine_summary

source_option = click.option(
    "--source",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Text that phrases of 3 to 8 words are taken from, one sentence per line. Default: a small one.",
)
seed_option = click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class Result(Protocol):
    """What a program measured."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""

    def rows(self) -> list[tuple[str, str]]:
        """Figures and their names, for people."""


def conclude(title: str, results: dict[str, Result], *, as_json: bool) -> None:
    """Print results by name and end the process: with status 1 if a promise is broken."""
    problems = [
        f"{name}: {problem}" if name else problem for name, each in results.items() for problem in each.problems
    ]
    if as_json:
        print_json({"command": title, "machine": machine_summary(), "problems": problems, "results": results})
    else:
        names = list(results)
        rows = table(title, "", *names)
        columns = [dict(result.rows()) for result in results.values()]
        for what in columns[0]:
            rows.add_row(what, *(column[what] for column in columns))
        console().print(rows)
    for problem in problems:
        console(stderr=True).print(f"BROKEN {problem}", style="red")
    console(stderr=True).print("Some promises are broken." if problems else "All promises are kept.")
    sys.exit(1 if problems else 0)
