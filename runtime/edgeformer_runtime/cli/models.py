"""The command ``models``: the models that other commands find by name."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import click

from edgeformer_runtime.cli.terminal import echo


@click.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path))
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="NAME",
    help="Remove a model from FOLDER or, by default, from your own models; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the models as JSON.")
def models(folders: tuple[Path, ...], removed: tuple[str, ...], as_json: bool) -> None:
    """List the models that other commands find by name, or remove some.

    FOLDER holds bundles, each named after its folder; by default, the folders in the environment variable
    EDGEFORMER_MODELS, then the folder `models`, then your own, where `edgeformer get` puts them. Of models with the
    same name, the first is found. Other commands take the names of these models in place of a bundle.

    \b
    Examples:
      edgeformer models
      edgeformer models --remove en-fr
      edgeformer translate en-fr "Where is the station?"
      EDGEFORMER_MODELS=/srv/models edgeformer serve
    """
    from edgeformer_runtime.cli.output import console, human_bytes, print_json, table
    from edgeformer_runtime.models.names import list_models, model_folders, remove_model

    for name in removed:
        echo(f"Removed `{remove_model(name, folders)}`.", err=True)
    if removed:
        return
    found, reasons = list_models(folders or None)
    for reason in reasons:
        echo(reason, err=True)
    if as_json:
        print_json([model.facts() for model in found])
        return
    if not found:
        searched = ", ".join(f"`{folder}`" for folder in folders or model_folders())
        console(stderr=True).print(
            f"There are no models in {searched}; fetch one with `edgeformer get`, or make one with `edgeformer export`."
        )
        return
    for folder, group in groupby(found, lambda model: model.path.parent):
        rows = table(f"Models in {folder}", "name", "languages", "precision", "parameters", "size")
        for model in group:
            pair = f"{', '.join(sorted(model.sources)) or '?'} → {', '.join(sorted(model.targets)) or '?'}"
            manifest = model.manifest
            rows.add_row(
                model.name,
                pair,
                model.precision,
                f"{manifest.parameters:,}",
                human_bytes(model.nbytes),
            )
        console().print(rows)
