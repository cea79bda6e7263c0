"""The commands ``data list`` and ``data prepare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import msgspec

from edgeformer.config import DataConfig, Recipe, load_recipe, recipe_names
from edgeformer.data.catalog import CORPORA
from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.terminal import echo

_DEFAULTS = DataConfig()
data_folder = click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Folder to look for the corpus files in."
)


@click.group()
def data() -> None:
    """List corpora, or write one as text files."""


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_corpora(as_json: bool) -> None:
    """List the named corpora with their sizes and licenses."""
    from edgeformer_runtime.cli.output import console, print_json, table

    if as_json:
        fields = ("name", "description", "source_language", "target_language", "pairs", "license", "origin")
        print_json([{field: getattr(corpus, field) for field in fields} for corpus in CORPORA.values()])
        return
    rows = table("Corpora", "name", "pairs", "description", "license")
    for column in rows.columns:
        column.justify, column.no_wrap = "left", column.header in ("name", "pairs")
    for corpus in CORPORA.values():
        rows.add_row(corpus.name, f"{corpus.pairs:,}", corpus.description, corpus.license)
    console().print(rows)


@data.command()
@click.argument("name")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Output folder.")
@data_folder
@options.group(
    "split",
    seed=click.option(
        "--seed", type=click.IntRange(0), help=f"Seed of the split. Default: the recipe's, or {_DEFAULTS.seed}."
    ),
    valid_size=click.option(
        "--valid-size",
        type=click.IntRange(1),
        help=f"Source sentences for validation. Default: the recipe's, or {_DEFAULTS.valid_size:,}.",
    ),
    test_size=click.option(
        "--test-size",
        type=click.IntRange(1),
        help=f"Source sentences for testing. Default: the recipe's, or {_DEFAULTS.test_size:,}.",
    ),
)
@click.option("--overwrite", is_flag=True, help="Replace a corpus that the folder already holds.")
def prepare(name: str, out: Path, data_dir: Path | None, split: dict[str, int], overwrite: bool) -> None:
    """Write a corpus, filtered and split, as aligned text files.

    NAME is a corpus of `edgeformer data list` or a recipe, such as a TOML file of yours. For a recipe, the files hold
    exactly what it trains on, with the same validation and test sets.

    A named corpus is looked up in the --data folder, then in the cache ($EDGEFORMER_CACHE, or ~/.cache/edgeformer), and
    downloaded otherwise.

    If the sizes or the seed differ from those of a recipe, the test set written here overlaps with what a model of
    that recipe was trained on.
    """
    from edgeformer.data.corpora import load_corpus
    from edgeformer.data.prepare import ensure_writable, write_corpus

    ensure_writable(out, overwrite=overwrite)
    recipe = _recipe(name)
    recipe = msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, **split))
    corpus = load_corpus(recipe.data, data_dir)
    corpus = replace(
        corpus,
        source_language=recipe.source_language or corpus.source_language,
        target_language=recipe.target_language or corpus.target_language,
    )
    write_corpus(corpus, out, overwrite=overwrite)
    echo(f"{name}: {corpus.report.summary()}")
    echo(f"train {len(corpus.train):,}, valid {len(corpus.valid):,}, test {len(corpus.test):,} pairs")
    if corpus.provenance.licence:
        echo(f"license: {corpus.provenance.licence}")
    echo(f"Wrote {out}.")


def _recipe(name: str) -> Recipe:
    """The recipe of that name, or one that has nothing but the corpus of that name.

    Raises:
        ConfigError: ``name`` is neither a corpus nor a recipe.
    """
    if name in CORPORA:
        return Recipe(model={}, data=DataConfig(corpus=name))
    if name not in recipe_names() and not Path(name).is_file():
        raise ConfigError(f"`{name}` is neither a corpus nor a recipe. Corpora: {', '.join(CORPORA)}.")
    return load_recipe(name)
