"""Groups of options."""

from __future__ import annotations

from typing import Any

import click
from click.testing import CliRunner

from edgeformer_runtime.cli import options


@click.command()
@click.argument("name")
@options.group("search", beam_size=options.beam, max_batch_tokens=options.batch_tokens)
@options.group("engine", truncate=options.truncate, threads=options.threads)
@click.option("--json", "as_json", is_flag=True)
def command(name: str, search: dict[str, Any], engine: dict[str, Any], as_json: bool) -> None:
    """Print what arrives."""
    click.echo((name, search, engine, as_json))


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_group_is_one_argument_with_the_values_that_were_given() -> None:
    values = ("x", {"beam_size": 3, "max_batch_tokens": 5}, {"truncate": True, "threads": 2}, True)
    assert printed("x", "--beam", "3", "--batch-tokens", "5", "--truncate", "--threads", "2", "--json") == str(values)
    values = ("x", {}, {"truncate": False, "threads": 0}, False)
    assert printed("x") == str(values)


def test_help_lists_the_options_in_their_order() -> None:
    listed = [line.split()[0] for line in printed("--help").splitlines() if line.startswith("  --")]
    assert listed == ["--beam", "--batch-tokens", "--truncate", "--threads", "--json", "--help"]


@click.command()
@options.search
def search(search: dict[str, Any]) -> None:
    """Print what arrives."""
    click.echo(search)
