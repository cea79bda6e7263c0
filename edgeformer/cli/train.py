"""``edgeformer train``: from a recipe to a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeformer.cli.data import data_folder
from edgeformer.config import load_recipe, recipe_names
from edgeformer_runtime.errors import missing_package

if TYPE_CHECKING:
    from edgeformer.config import Recipe
    from edgeformer.run.folder import Run
    from edgeformer.train.trainer import TrainResult

_EPILOG = "\n  ".join(["\b\nRecipes:", *recipe_names()])


@click.command(epilog=_EPILOG)
@click.argument("recipe", required=False)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Run folder to write; missing or empty.")
@data_folder
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the recipe, such as train.max_steps=500 or data.max_words=50; may be repeated.",
)
@click.option(
    "--init",
    "init",
    type=click.Path(path_type=Path),
    help="Start from the model of this run, trained or imported (fine-tuning). RECIPE may be omitted.",
)
@click.option("--resume", is_flag=True, help="Continue from the last checkpoint in --out. RECIPE may be omitted.")
@click.option(
    "--export-check/--no-export-check",
    default=True,
    show_default=True,
    help="Check first that a model of another package can be exported, if the exporter is installed.",
)
def train(
    recipe: str | None,
    out: Path,
    data_dir: Path | None,
    overrides: tuple[str, ...],
    init: Path | None,
    resume: bool,
    export_check: bool,
) -> None:
    """Train a model from a recipe.

    RECIPE is one of the recipes below or the path of a TOML file. The files that it names are looked for in the folder
    of --data or, without it, in the current folder and then beside the recipe.

    Ctrl-C stops after the current update and saves. With --resume, training continues as if it had not been
    interrupted, and --set may change train.max_steps, train.max_minutes, train.cooldown_steps, train.patience and
    train.threads. To use several GPUs or machines, start the command with torchrun: `torchrun --nproc-per-node N
    --no-python edgeformer train …`.

    With --init, model, tokenizers and languages are those of another run; the recipe says what to train on and how:
    `edgeformer train --init run --set data.train='["pairs.tsv"]' --set train.learning_rate=1e-4 --out tuned`.
    """
    if init is not None and resume:
        raise click.UsageError("--init starts a run, and --resume continues one; give only one of them.")
    if recipe is None and not resume and init is None:
        raise click.UsageError(
            f"RECIPE is missing; choose one of {', '.join(recipe_names())}, or the path of a TOML file."
        )
    if recipe is None and overrides and resume:
        recipe = str(out / "recipe.json")
    loaded, initial = _recipe(recipe, overrides, init)

    from edgeformer.data.corpora import folder_of_files
    from edgeformer.train.processes import process_rank
    from edgeformer.train.stopping import Interruption
    from edgeformer.train.trainer import train as run_training
    from edgeformer_runtime.cli.output import console

    if data_dir is None and loaded is not None and recipe not in recipe_names():
        data_dir = folder_of_files(loaded.data, Path(recipe or "recipe.toml"))
    result = run_training(
        loaded, out, data_dir, init=initial, resume=resume, export_check=export_check, console=console()
    )
    is_first = process_rank() == 0
    if is_first:
        _draw(result)
    if isinstance(result.stopped_by, Interruption):
        command = f"edgeformer train --out {out} --resume" + (f" --data {data_dir}" if data_dir else "")
        if is_first:
            console().print(f"Stopped by {result.stopped_by} after {result.steps:,} steps. Continue with:\n  {command}")
        sys.exit(128 + result.stopped_by.signal)
    if is_first:
        _summarize(result)
        console().print(f"Next: edgeformer export {out} --out BUNDLE")


def _recipe(name: str | None, overrides: tuple[str, ...], init: Path | None) -> tuple[Recipe | None, Run | None]:
    """Read the recipe, and the run to start from."""
    if init is None:
        return (None if name is None else load_recipe(name, overrides)), None
    from edgeformer.run.folder import Run
    from edgeformer.train.setup import fine_tuning_recipe

    run = Run.open(init)
    return fine_tuning_recipe(run, None if name is None else load_recipe(name), overrides), run


def _draw(result: TrainResult) -> None:
    """Draw the run's metrics, or say what is missing for that."""
    from edgeformer_runtime.cli.output import console

    try:
        from edgeformer.train.report.picture import draw_training
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        console().print(missing_package("A picture of the training", "matplotlib", "plot"))
        return
    draw_training(result.run.path)


def _summarize(result: TrainResult) -> None:
    """Print the figures of a finished training."""
    from edgeformer_runtime.cli.output import console, table

    info = result.run.info
    rows = table(str(result.run.path), "", "")
    rows.add_row("steps", f"{result.steps:,} in {info.minutes:.1f} minutes, stopped by {info.stopped_by}")
    rows.add_row("speed", f"{info.tokens_per_second:,.0f} target tokens/s")
    rows.add_row("parameters", f"{info.parameters:,}")
    if result.final is not None:
        rows.add_row("validation loss", f"{result.final.loss:.4f} (perplexity {result.final.perplexity:.2f})")
        rows.add_row("BLEU, greedy", f"{result.final.bleu:.2f} on {result.final.sentences:,} sentences")
        rows.add_row("exact match", f"{result.final.exact_match:.1%}")
    console().print(rows)
