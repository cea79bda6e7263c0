"""Options of the command ``export`` for choosing a precision, and the table of the choice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from edgeformer_export.choice import Choice

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = [
    click.option(
        "--max-bleu-drop",
        type=click.FloatRange(0),
        default=0.2,
        show_default=True,
        help="auto: largest acceptable drop in BLEU compared with fp32.",
    ),
    click.option(
        "--optimize",
        type=click.Choice(["latency", "size"]),
        default="latency",
        show_default=True,
        help="auto: what to minimize within that budget.",
    ),
    click.option(
        "--data",
        "data_dir",
        type=click.Path(path_type=Path),
        help="auto, --shortlist: folder that contains the corpus.",
    ),
    click.option(
        "--valid",
        type=(click.Path(path_type=Path), click.Path(path_type=Path)),
        metavar="SOURCE REFERENCE",
        help="auto: text to measure BLEU on. Default: the validation set of the run's corpus.",
    ),
    click.option(
        "--sentences",
        type=click.IntRange(2),
        help="auto: number of its sentences to use, from the first. Default: all.",
    ),
    click.option(
        "--beam",
        "beam_size",
        type=click.IntRange(1),
        help="auto: beam size, for quality and for latency. Default: the model's.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(0),
        default=1,
        show_default=True,
        help="auto: CPU threads per operator; 0 for as many as are useful for a model of its size.",
    ),
]


def auto_options(command: Command) -> Command:
    """Add the options of ``--precision auto`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_auto_options(context: click.Context, names: list[str]) -> None:
    """Refuse these options where there is nothing to choose.

    Raises:
        click.UsageError: at least one of them is given.
    """
    explicit = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    options = [parameter.opts[0] for parameter in context.command.params if parameter.name in explicit]
    if options:
        where = "--precision auto or --shortlist" if explicit == ["data_dir"] else "--precision auto"
        raise click.UsageError(f"{', '.join(options)} can only be used with {where}.")


def print_choice(choice: Choice, name: str) -> None:
    """Show the table of candidates for a bundle, and how one of them was chosen."""
    from edgeformer_export.choice import COLUMNS
    from edgeformer_runtime.cli.output import console, table

    shown = table(f"Precisions of {name}", *COLUMNS)
    for row in choice.rows:
        shown.add_row(*row)
    console().print(shown)
    for note in choice.notes:
        console().print(note)
