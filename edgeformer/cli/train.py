"""``edgeformer train``: from a recipe to a run folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgeformer.config import load_recipe, recipe_names
from edgeformer_runtime.cli import options

_EPILOG = "\n  ".join(["\b\nRecipes:", *recipe_names()])


@click.command(epilog=_EPILOG)
@click.argument("recipe", required=False)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Run folder to write; missing or empty.")
@options.data_folder
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key, as in train.max_steps=500.")
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in --out; RECIPE may be left out.")
def train(recipe: str | None, out: Path, data_dir: Path | None, overrides: tuple[str, ...], resume: bool) -> None:
    """Train a model as RECIPE says: one of the recipes below, or the path of a TOML file.

    Ctrl-C stops after the running update and saves; --resume then goes on as if nothing had happened, and may change
    train.max_steps, train.max_minutes, train.cooldown_steps, train.patience and train.threads with --set. To use
    several GPUs or machines, start it with `torchrun --nproc-per-node N --no-python edgeformer train …`.
    """
    if recipe is None and not resume:
        raise click.UsageError(
            f"RECIPE is missing; give one of {', '.join(recipe_names())}, or the path of a TOML file."
        )
    if recipe is None and overrides:
        recipe = str(out / "recipe.json")
    loaded = None if recipe is None else load_recipe(recipe, overrides)

    from rich.console import Console
    from rich.table import Table

    from edgeformer.train.trainer import process_rank
    from edgeformer.train.trainer import train as run_training

    console = Console(quiet=process_rank() > 0)
    result = run_training(loaded, out, data_dir, resume=resume, console=console)
    command = f"edgeformer train --out {out} --resume" + (f" --data {data_dir}" if data_dir else "")
    if not result.finished:
        console.print(f"Stopped by {result.stopped_by} after {result.steps:,} steps. Continue with:", highlight=False)
        console.print(f"  {command}", soft_wrap=True, highlight=False)
        sys.exit(130)
    info = result.run.info
    table = Table(box=None, show_header=False)
    table.add_row("steps", f"{result.steps:,} in {result.minutes:.1f} minutes, stopped by {info.stopped_by}")
    table.add_row("speed", f"{info.tokens_per_second:,.0f} target tokens/s")
    table.add_row("parameters", f"{info.parameters:,}")
    if result.final is not None:
        table.add_row("validation loss", f"{result.final.loss:.4f} (perplexity {result.final.perplexity:.2f})")
        table.add_row("BLEU, greedy", f"{result.final.bleu:.2f} on {result.final.sentences:,} sentences")
        table.add_row("exact match", f"{result.final.exact_match:.1%}")
    table.add_row("run", str(out))
    console.print(table)
    console.print(f"Next: edgeformer export {out} --out BUNDLE", soft_wrap=True, highlight=False)
