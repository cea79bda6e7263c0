"""Groups of options."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import click
from click.testing import CliRunner

from edgeformer_runtime.cli import options, search_options
from edgeformer_runtime.decoding.options import DecodeOptions


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
    values = ("x", {"beam_size": 3, "max_batch_tokens": 4096}, {"truncate": True, "threads": 2}, True)
    assert printed("x", "--beam", "3", "--truncate", "--threads", "2", "--json") == str(values)
    values = ("x", {"max_batch_tokens": 4096}, {"truncate": False, "threads": 0}, False)
    assert printed("x") == str(values)


def test_help_lists_the_options_in_their_order() -> None:
    listed = [line.split()[0] for line in printed("--help").splitlines() if line.startswith("  --")]
    assert listed == ["--beam", "--batch-tokens", "--truncate", "--threads", "--json", "--help"]


@click.command()
@search_options.search
def search(search: dict[str, Any]) -> None:
    """Print what arrives."""
    click.echo(search)


def test_every_option_of_the_search_is_a_field() -> None:
    def arrives(*arguments: str) -> dict[str, Any]:
        result = CliRunner().invoke(search, arguments)
        assert result.exit_code == 0, result.output
        values: dict[str, Any] = ast.literal_eval(result.stdout)
        return values

    fields = {field.name: field.default for field in dataclasses.fields(DecodeOptions)}
    for name, value in arrives().items():
        assert fields[name] == value
    changes: dict[str, dict[str, Any]] = {
        "--disable-unk": {"disable_unk": True},
        "--patience=2": {"patience": 2.0},
        "--coverage-penalty=1.5": {"coverage_penalty": 1.5},
        "--max-ngram-repeats=2": {"max_ngram_repeats": 2},
        "--replace-unknowns": {"replace_unknowns": True},
        "--length-includes-end": {"length_includes_end": True},
    }
    for argument, expected in changes.items():
        assert arrives(argument) == {**arrives(), **expected}
    # Attention and scores are requested by other options of the command.
    given = {declared.name for declared in search.params}
    assert len(given) == len(fields) - len({"return_attention", "return_scores"})
