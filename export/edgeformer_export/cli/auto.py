"""The part of the command ``export`` that chooses a precision."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from edgeformer_export.auto.export_best import AutoReport
    from edgeformer_runtime.bundle.manifest import Target

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = [
    click.option(
        "--max-bleu-drop",
        type=click.FloatRange(0),
        default=0.2,
        show_default=True,
        help="auto: how much lower than fp32's the BLEU may be.",
    ),
    click.option(
        "--optimise",
        type=click.Choice(["latency", "size"]),
        default="latency",
        show_default=True,
        help="auto: what to be best in, inside that budget.",
    ),
    click.option("--data", "data_dir", type=click.Path(path_type=Path), help="auto: folder to look for the corpus in."),
    click.option(
        "--valid",
        type=(click.Path(path_type=Path), click.Path(path_type=Path)),
        metavar="SOURCE REFERENCE",
        help="auto: text to measure BLEU on. Default: the validation set of the run's corpus.",
    ),
    click.option("--sentences", type=click.IntRange(2), help="auto: take so many of its sentences. Default: all."),
    click.option(
        "--beam",
        "beam_size",
        type=click.IntRange(1),
        help="auto: hypotheses kept, for quality and for latency. Default: the model's.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(0),
        default=1,
        show_default=True,
        help="auto: CPU threads of the device; 0 takes all.",
    ),
    click.option("--resume", is_flag=True, help="auto: use what an earlier run has measured before it was cut off."),
]


def auto_options(command: Command) -> Command:
    """Give a command the options of the choice."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_auto_options(context: click.Context, names: list[str]) -> None:
    """Refuse them where there is nothing to choose.

    Raises:
        click.UsageError: one of them is given.
    """
    given = [name for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT]
    options = [one.opts[0] for one in context.command.params if one.name in given]
    if options:
        raise click.UsageError(f"{', '.join(options)} needs --precision auto.")


def export_auto(
    run: Path,
    out: Path,
    *,
    target: Target,
    overwrite: bool,
    quiet: bool,
    stage_names: dict[str, str],
    data_dir: Path | None,
    valid: tuple[Path, Path] | None,
    resume: bool,
    **options: Any,
) -> AutoReport:
    """Choose and export.

    Args:
        run: the run folder.
        out: the bundle's folder.
        target: which operators may be used.
        overwrite: replace what exists.
        quiet: show no progress.
        stage_names: text for the stages of an export.
        data_dir: folder to look for the corpus in.
        valid: source and reference files in the place of the corpus's.
        resume: use earlier measurements.
        options: fields of :class:`~edgeformer_export.auto.export_best.AutoOptions`.
    """
    from edgeformer.quality.tuning import file_text, validation_text
    from edgeformer.train.run import Run
    from edgeformer_export.auto.export_best import AutoOptions, export_best, work_folder
    from edgeformer_runtime.cli.output import stages

    opened = Run.open(run)
    text = validation_text(run, data_dir) if valid is None else file_text(run, *valid)
    name = "validation set of the training corpus" if valid is None else f"{valid[0].name} and {valid[1].name}"
    try:
        with stages(_Stages(stage_names), quiet=quiet) as progress:
            return export_best(
                opened,
                out,
                text,
                name,
                AutoOptions(**options),
                target=target,
                resume=resume,
                overwrite=overwrite,
                progress=progress,
            )
    except KeyboardInterrupt:
        click.echo(
            f"Stopped. What was measured is in {work_folder(out)}; the same command with --resume goes on.", err=True
        )
        sys.exit(130)


class _Stages(dict[str, str]):
    """Texts of all stages; those of candidates are made of their names."""

    def __missing__(self, stage: str) -> str:
        verb, _, name = stage.partition(" ")
        texts = {
            "sensitivity": f"Quantizing one layer at a time, {name}",
            "translate": f"Translating with {name}",
            "time": "Timing all candidates",
        }
        return texts[verb]


def print_choice(report: AutoReport) -> None:
    """Show the table of candidates and how one of them was chosen."""
    from edgeformer_export.auto.tables import COLUMNS, explanation, rows
    from edgeformer_runtime.cli.output import console, human_bytes, table

    choice = report.choice
    shown = table(f"Candidates for {report.export.bundle.name}", *COLUMNS)
    for row in rows(choice):
        shown.add_row(*row)
    out = console()
    out.print(shown)
    for line in [*explanation(choice), *choice.remarks]:
        out.print(line)
    out.print(f"Report: {report.page}")
    if find_spec("matplotlib") is None:
        out.print("It has no plot, since matplotlib is not installed: pip install 'edgeformer[plot]'.")
    bundle, size = report.export.bundle, human_bytes(report.export.nbytes)
    out.print(f"Wrote {bundle}, {choice.chosen}, {size}. Next: edgeformer translate {bundle}")
