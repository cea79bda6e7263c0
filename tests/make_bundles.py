"""Writes the bundles of ``tests/runtime/bundles``, with which the runtime is tested where torch is not installed.

Usage: ``python -m tests.make_bundles [PRECISION]...``, from the root of the repository: for a new precision, or without
arguments whenever the format of bundles changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from edgeformer_runtime.precision import Precision
from tests.store import COMMITTED, CPU_PRECISIONS, Store


@click.command()
@click.argument("precisions", nargs=-1, type=click.Choice(CPU_PRECISIONS))
def main(precisions: tuple[Precision, ...]) -> None:
    """Replace the committed bundles of PRECISIONS, by default all, by new exports."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for precision in precisions or CPU_PRECISIONS:
            made, path = store.bundle(precision=precision, steps=100), COMMITTED / precision
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(made, path)
            size = sum(file.stat().st_size for file in path.iterdir())
            click.echo(f"{path}: {size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
