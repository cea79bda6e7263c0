"""Checks batch invariance: counts outputs that differ from those of the same sentence translated alone.

Usage: ``python -m edgeformer_bench.studies.invariance BUNDLE --source FILE``
"""

from __future__ import annotations

import random
from pathlib import Path

import click

from edgeformer.data.text import read_lines
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.translator import Translator


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option(
    "--beam",
    "beams",
    multiple=True,
    type=click.IntRange(1),
    default=(1, 4),
    show_default=True,
    help="Hypotheses kept per sentence; may be repeated.",
)
def main(bundle: Path, source: Path, beams: tuple[int, ...]) -> None:
    """Translate each sentence alone, in large batches, in small shuffled batches, and on two threads.

    Exits with status 1 if tokens differ.
    """
    texts = read_lines(source)
    shuffled = list(range(len(texts)))
    random.Random(1).shuffle(shuffled)
    one_thread, two_threads = (Translator.open(bundle, threads=threads) for threads in (1, 2))
    rows, failures = table(f"{bundle}, {len(texts):,} sentences", "", "tokens differ", "largest score difference"), 0
    for beam in beams:
        alone = [one_thread.translate([text], beam_size=beam)[0].best for text in texts]
        settings = {
            "batches of 4,096 tokens": (one_thread, range(len(texts)), 4096),
            "batches of 512 tokens, shuffled": (one_thread, shuffled, 512),
            "two threads": (two_threads, range(len(texts)), 4096),
        }
        for name, (translator, order, size) in settings.items():
            output = translator.translate([texts[index] for index in order], beam_size=beam, max_batch_tokens=size)
            pairs = [(alone[index], translation.best) for index, translation in zip(order, output, strict=True)]
            different = sum(a.ids != b.ids for a, b in pairs)
            scores = max(abs((a.score or 0.0) - (b.score or 0.0)) for a, b in pairs)
            rows.add_row(f"beam {beam}, {name}", f"{different:,}", f"{scores:.1e}")
            failures += different
    console().print(rows)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
