"""Many sentences: threads against workers, and whether memory grows with what was translated before.

Usage: ``python -m edgeformer_bench.studies.many_sentences BUNDLE --source FILE``
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

import click

from edgeformer.data.text import read_lines
from edgeformer_bench.latency import machine
from edgeformer_bench.memory import peak_memory_mb
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.engine.onnx_session import available_cpus
from edgeformer_runtime.translator import Translator

COUNTS = (100, 1_000, 10_000)
LINES = (1, 1, 1, 2, 3)
"""Lines put together to make a sentence, one of these at random, so that lengths are mixed."""


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--limit", default=1000, show_default=True, help="Sentences to time.")
@click.option("--repeat", default=3, show_default=True, help="Measured rounds, alternating.")
def main(bundle: Path, source: Path, limit: int, repeat: int) -> None:
    """Print peak memory after 100, 1,000 and 10,000 sentences with beam 2, then the time of --limit sentences."""
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
    ways = {"1 thread": (1, 1), f"{cpus} threads": (cpus, 1), f"{cpus} workers, 1 thread each": (1, cpus)}
    translators = {name: Translator.open(bundle, threads=a, workers=b) for name, (a, b) in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeat + 1):
        for name, one in translators.items():
            begin = time.perf_counter()
            one.translate(texts[:limit])
            if number:
                seconds[name].append(time.perf_counter() - begin)
    times = table(f"{bundle}: {len(texts[:limit]):,} sentences", "", "seconds, median")
    for name, values in seconds.items():
        times.add_row(name, f"{statistics.median(values):.2f}")
    console().print(times)
    console().print(machine())


if __name__ == "__main__":
    main()
