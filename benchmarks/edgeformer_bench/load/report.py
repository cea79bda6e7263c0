"""How the programs that test promises end: a table, the broken promises, and the exit status."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Protocol

import click

from edgeformer_bench.commands import command_line
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION
from edgeformer_runtime.selfcheck.machine import machine_summary

BESIDE = 4
"""Results that are shown beside each other; more would not fit on a terminal."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class Result(Protocol):
    """What a program measured."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""

    def rows(self) -> list[tuple[str, str]]:
        """Figures and their names, for people."""


def conclude(results: Mapping[str, Result], *, as_json: bool) -> None:
    """Print results by name and end the process: with status 1 if a promise is broken."""
    problems = [f"{name}: {problem}" for name, result in results.items() for problem in result.problems]
    if as_json:
        print_json({"command": command_line(), "machine": machine_summary(), "problems": problems, "results": results})
    else:
        console().print(command_line(), style="bold")
        for start in range(0, len(results), BESIDE):
            columns = {name: dict(result.rows()) for name, result in list(results.items())[start : start + BESIDE]}
            rows = table("", "", *columns)
            for what in dict.fromkeys(what for column in columns.values() for what in column):
                rows.add_row(what, *(column.get(what, "–") for column in columns.values()))
            console().print(rows)
        console().print(f"{machine_summary()}; onnxruntime {ENGINE_VERSION}")
    for problem in problems:
        console(stderr=True).print(f"BROKEN {problem}", style="red")
    console(stderr=True).print("Some promises are broken." if problems else "All promises are kept.")
    sys.exit(1 if problems else 0)
