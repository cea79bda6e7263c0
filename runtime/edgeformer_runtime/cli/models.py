"""The command ``models``: the models that other commands find by name."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("folders", nargs=-1, metavar="[FOLDER]...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the models as JSON.")
def models(folders: tuple[Path, ...], as_json: bool) -> None:
    """List the models that other commands find by name.

    FOLDER holds bundles, each named after its folder; by default, the folders in the environment variable
    EDGEFORMER_MODELS, or else the folder `models`. Other commands take the names of these models in place of a bundle.

    \b
    Examples:
      edgeformer models
      edgeformer translate en-fr "Where is the station?"
      EDGEFORMER_MODELS=/srv/models edgeformer serve
    """
    from edgeformer_runtime.cli.output import console, human_bytes, print_json, table
    from edgeformer_runtime.workspace.names import VARIABLE, left_out, model_folders, named_models

    found = named_models(folders or None)
    for reason in left_out(folders or None):
        click.echo(reason, err=True)
    if as_json:
        print_json(
            [
                {
                    "name": model.name,
                    "path": model.path,
                    "sources": sorted(model.sources),
                    "targets": sorted(model.targets),
                    "family": model.manifest.family,
                    "precision": model.manifest.precision["decoder.onnx"],
                    "parameters": model.manifest.parameters,
                    "bytes": model.nbytes,
                }
                for model in found
            ]
        )
        return
    if not found:
        searched = ", ".join(f"`{folder}`" for folder in folders or model_folders())
        console(stderr=True).print(
            f"There are no models in {searched}; set {VARIABLE} to a folder that has some, or make a bundle with "
            "`edgeformer export`.",
            soft_wrap=True,
        )
        return
    rows = table("Models", "name", "languages", "precision", "parameters", "size")
    for model in found:
        pair = f"{', '.join(sorted(model.sources)) or '?'} → {', '.join(sorted(model.targets)) or '?'}"
        manifest = model.manifest
        rows.add_row(
            model.name,
            pair,
            manifest.precision["decoder.onnx"],
            f"{manifest.parameters:,}",
            human_bytes(model.nbytes),
        )
    console().print(rows)
