"""Latency of bundles and of the torch model they come from, in one run, alternating. Run it with ``make bench``.

Each round translates the same sentences with each system in turn, one call per sentence, so that a slow moment of the
machine meets all of them. Printed are medians over all calls and the ratio to torch.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from edgeformer.benchmark import latency, machine
from edgeformer.evaluation import System, open_system
from edgeformer_runtime.bundle import open_bundle
from edgeformer_runtime.decode import decode
from edgeformer_runtime.golden import golden_cases
from edgeformer_runtime.options import DecodeOptions


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Run folder of the torch model to compare with.")
@click.option("--source", type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--limit", default=50, show_default=True, help="Sentences to take from --source.")
@click.option("--beam", "beams", multiple=True, type=click.IntRange(1), default=(1, 4), show_default=True)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--repeat", default=7, show_default=True, type=click.IntRange(1), help="Measured rounds.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write the figures to this file.")
def main(
    bundles: tuple[Path, ...],
    checkpoint: Path | None,
    source: Path | None,
    limit: int,
    beams: tuple[int, ...],
    threads: int,
    repeat: int,
    json_file: Path | None,
) -> None:
    """Time BUNDLES, and torch with --checkpoint, on the same sentences."""
    torch.set_num_threads(threads)
    systems: dict[str, System] = {}
    if checkpoint is not None:
        systems["torch eager, cached"] = open_system(checkpoint, threads=threads)
    for bundle in bundles:
        systems[f"{bundle.name} bundle"] = open_system(bundle, threads=threads)
    if source is not None:
        texts = source.read_text(encoding="utf-8").splitlines()[:limit]
    else:
        texts = list(dict.fromkeys(case.text for case in golden_cases(open_bundle(bundles[0]))))
    tokenizer = next(iter(systems.values())).source_tokenizer
    sentences = [[*ids, tokenizer.eos_id] for ids in tokenizer.encode_batch(texts)]

    console, figures = Console(highlight=False), []
    for beam in beams:
        options = DecodeOptions(beam_size=beam, return_scores=False)
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(repeat + 1):
            for ids in sentences:
                for name, system in systems.items():
                    begin = time.perf_counter()
                    decode(system.session, [ids], options)
                    if number:
                        seconds[name].append(time.perf_counter() - begin)
        base = statistics.median(next(iter(seconds.values())))
        title = f"{'greedy' if beam == 1 else f'beam {beam}'}, {len(sentences)} sentences, {threads} thread(s)"
        table = Table(title=title, title_justify="left")
        for column in ("", "p50 ms", "p95 ms", "times faster"):
            table.add_column(column, justify="right" if column else "left")
        for name, values in seconds.items():
            times = latency(values)
            table.add_row(name, f"{times.p50:.2f}", f"{times.p95:.2f}", f"{1000 * base / times.p50:.2f}")
            figures.append({"system": name, "beam": beam, "threads": threads, "p50_ms": times.p50, "p95_ms": times.p95})
        console.print(table)
    console.print(machine())
    if json_file is not None:
        json_file.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
