"""``edgeformer data``: the named corpora."""

from __future__ import annotations

from pathlib import Path

import click

from edgeformer.cli import options
from edgeformer.config import DataConfig
from edgeformer.data.catalogue import CORPORA

_DEFAULTS = DataConfig()


@click.group()
def data() -> None:
    """List the named corpora, or write one as text files."""


@data.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_corpora(as_json: bool) -> None:
    """List the named corpora with their sizes and licences."""
    if as_json:
        import msgspec

        fields = ("name", "description", "source_language", "target_language", "pairs", "licence", "origin")
        records = [{field: getattr(corpus, field) for field in fields} for corpus in CORPORA.values()]
        click.echo(msgspec.json.format(msgspec.json.encode(records), indent=2).decode("utf-8"))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    table.add_column("name", no_wrap=True)
    table.add_column("pairs", no_wrap=True, justify="right")
    table.add_column("description")
    table.add_column("licence")
    for corpus in CORPORA.values():
        table.add_row(corpus.name, f"{corpus.pairs:,}", corpus.description, corpus.licence)
    Console().print(table)


@data.command(context_settings={"show_default": True})
@click.argument("name", type=click.Choice(list(CORPORA)), metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write to.")
@options.data_folder
@click.option("--seed", type=click.IntRange(0), default=_DEFAULTS.seed, help="Seed of the split: data.seed.")
@click.option(
    "--valid-size", type=click.IntRange(1), default=_DEFAULTS.valid_size, help="Source sentences: data.valid_size."
)
@click.option(
    "--test-size", type=click.IntRange(1), default=_DEFAULTS.test_size, help="Source sentences: data.test_size."
)
@click.option("--overwrite", is_flag=True, help="Replace a corpus written to the folder before.")
def prepare(
    name: str, out: Path, data_dir: Path | None, seed: int, valid_size: int, test_size: int, overwrite: bool
) -> None:
    """Write corpus NAME, filtered and split, as aligned text files with a report.

    The corpus is looked for in the --data folder, then in the cache ($EDGEFORMER_CACHE, else ~/.cache/edgeformer), then
    downloaded.

    --seed, --valid-size and --test-size must match the recipe's data.seed, data.valid_size and data.test_size:
    otherwise the test set written here holds text that a model of that recipe was trained on.
    """
    from edgeformer.data.corpora import load_corpus
    from edgeformer.data.prepare import ensure_writable, write_corpus

    ensure_writable(out, overwrite=overwrite)
    corpus = load_corpus(DataConfig(corpus=name, seed=seed, valid_size=valid_size, test_size=test_size), data_dir)
    write_corpus(corpus, out, overwrite=overwrite)
    click.echo(f"{name}: {corpus.report.summary()}")
    click.echo(f"train {len(corpus.train):,}, valid {len(corpus.valid):,}, test {len(corpus.test):,} pairs")
    click.echo(f"licence: {corpus.provenance.licence}")
    click.echo(f"written to {out}")
