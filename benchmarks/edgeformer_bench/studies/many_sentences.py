"""Many sentences: threads compared with workers, and whether memory grows with the number of translations.

Usage: ``python -m edgeformer_bench.studies.many_sentences BUNDLE --source FILE``
"""

from __future__ import annotations

import random
import statistics
from functools import partial
from pathlib import Path

import click

from edgeformer.data.text import read_lines
from edgeformer_bench.commands import Command
from edgeformer_bench.timer import alternate, timed
from edgeformer_runtime.cli.output import console, plural, table
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.engine.memory import peak_memory_mb
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.translator import Translator

COUNTS = (100, 1_000, 10_000)
LINES = (1, 1, 1, 2, 3)
"""Numbers of lines to join into one sentence, drawn at random for each sentence so that lengths vary."""


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--limit", default=1000, show_default=True, help="Number of sentences to time.")
@click.option("--repeat", default=3, show_default=True, help="Measured rounds.")
def main(bundle: Path, source: Path, limit: int, repeat: int) -> None:
    """Print peak memory after 100, 1,000 and 10,000 sentences with beam 2, then the time to translate --limit
    sentences with several threads and with several workers."""
    texts = read_lines(source)
    longest = max(map(len, texts))
    memory = table(f"{bundle}: peak memory of this process", "sentences", "MB")
    translator, choice, done = Translator.open(bundle, threads=1), random.Random(1), 0
    for count in COUNTS:
        while done < count:
            size = min(500, count - done)
            mixed = (" ".join(choice.choice(texts) for _ in range(choice.choice(LINES))) for _ in range(size))
            translator.translate([text[:longest] for text in mixed], beam_size=2)
            done += size
        memory.add_row(f"{count:,}", f"{peak_memory_mb() or 0:.0f}")
    console().print(memory)

    cpus = available_cpus()
    threads, workers = plural(cpus, "thread"), f"{plural(cpus, 'worker')} of 1 thread"
    settings = {"1 thread": (1, 1), threads: (cpus, 1), workers: (1, cpus)}
    translators = {name: Translator.open(bundle, threads=a, workers=b) for name, (a, b) in settings.items()}
    turns = {name: timed(partial(entry.translate, texts[:limit])) for name, entry in translators.items()}
    times = table(f"{bundle}: {plural(len(texts[:limit]), 'sentence')}", "", "median s")
    for name, seconds in alternate(turns, rounds=repeat).items():
        times.add_row(name, f"{statistics.median(seconds):.2f}")
    console().print(times)
    console().print(machine_summary())


if __name__ == "__main__":
    main()
