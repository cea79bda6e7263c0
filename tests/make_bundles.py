"""Writes the bundles of ``tests/runtime/bundles``, with which the runtime is tested where torch is not installed.

Usage: ``python -m tests.make_bundles [BUNDLE]...``, from the root of the repository: for a new precision, or without
arguments whenever the format of bundles changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import cast

import click

from edgeformer_runtime.precision import Precision
from tests.store import COMMITTED, CPU_PRECISIONS, STATES, Store


@click.command()
@click.argument("bundles", nargs=-1, type=click.Choice([*CPU_PRECISIONS, *STATES]))
def main(bundles: tuple[str, ...]) -> None:
    """Replace the committed BUNDLES, by default all, by new exports."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for name in bundles or (*CPU_PRECISIONS, *STATES):
            path = COMMITTED / name
            made = store.bundle(name) if name in STATES else store.bundle(precision=cast(Precision, name), steps=100)
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(made, path)
            size = sum(file.stat().st_size for file in path.iterdir())
            click.echo(f"{path}: {size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
