"""The part of the command ``export`` that chooses a precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from edgeformer.train.run import Run
    from edgeformer_export.auto import AutoReport
    from edgeformer_runtime.bundle.manifest import Target

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


def export_auto(
    run: Run,
    out: Path,
    *,
    target: Target,
    overwrite: bool,
    quiet: bool,
    data_dir: Path | None,
    valid: tuple[Path, Path] | None,
    **options: Any,
) -> AutoReport:
    """Choose a precision and export the run in it.

    Args:
        run: the opened run.
        out: the bundle's folder.
        target: which operators may be used.
        overwrite: replace an existing bundle.
        quiet: show no progress.
        data_dir: folder that contains the corpus.
        valid: source and reference file to use instead of the corpus's validation set.
        options: fields of :class:`~edgeformer_export.auto.AutoOptions`.
    """
    from edgeformer_export.auto import AutoOptions, export_best
    from edgeformer_export.validation_text import validation_text
    from edgeformer_runtime.cli.output import stages

    text = validation_text(run, data_dir, valid)
    with stages(quiet=quiet) as progress:
        return export_best(
            run, out, text, AutoOptions(**options), target=target, overwrite=overwrite, progress=progress
        )


def print_choice(report: AutoReport) -> None:
    """Show the table of candidates and how one of them was chosen."""
    from edgeformer_export.choice import COLUMNS
    from edgeformer_runtime.cli.output import console, human_bytes, table

    out, choice, bundle = console(), report.choice, report.export.bundle
    shown = table(f"Precisions of {bundle.name}", *COLUMNS)
    for row in choice.rows:
        shown.add_row(*row)
    out.print(shown)
    for note in choice.notes:
        out.print(note)
    size = human_bytes(report.export.nbytes)
    out.print(f"Wrote {bundle}, {choice.chosen}, {size}. Next: edgeformer translate {bundle}")
