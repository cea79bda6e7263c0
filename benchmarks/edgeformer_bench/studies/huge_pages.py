"""What huge pages gain: one bundle opened twice, with its weights in pages as the system gives them and in huge ones.

Usage: ``python -m edgeformer_bench.studies.huge_pages BUNDLE``
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from pathlib import Path
from threading import enumerate as running_threads
from unittest import mock

import click
import numpy as np

from edgeformer_bench.latency import machine
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine import onnx_session
from edgeformer_runtime.engine.huge_pages import THREAD_NAME
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import EdgeformerError

WORKLOADS = {"1 sentence, greedy": (1, 1), "1 sentence, beam 4": (1, 4), "32 sentences, greedy": (32, 1)}
SOURCE_LENGTH, TARGET_LENGTH = 20, 30


@click.command()
@click.argument("path", metavar="BUNDLE", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(3), help="Of each workload.")
def main(path: Path, rounds: int) -> None:
    """Time both in turn on random sources of 20 tokens, 30 tokens of output, one thread; medians in milliseconds."""
    try:
        bundle = open_bundle(path)
        huge = OnnxSession(bundle, threads=1)
        with mock.patch.object(onnx_session, "huge_pages", nullcontext):
            usual = OnnxSession(bundle, threads=1)
    except EdgeformerError as error:
        raise click.ClickException(str(error)) from None
    for thread in running_threads():
        if thread.name == THREAD_NAME:
            thread.join()
    random = np.random.default_rng(1)
    rows = table(str(path), "", "usual pages", "huge pages", "times as fast")
    for name, (sentences, beam_size) in WORKLOADS.items():
        special = len(SpecialTokens.__struct_fields__)
        tokens = random.integers(special, bundle.manifest.source_vocab_size, (sentences, SOURCE_LENGTH - 1)).tolist()
        sources = [[*row, bundle.manifest.special.eos] for row in tokens]
        options = DecodeOptions(beam_size=beam_size, min_length=TARGET_LENGTH, max_length=TARGET_LENGTH)
        times: dict[str, list[float]] = {"usual": [], "huge": []}
        for _ in range(rounds):
            for kind, session in (("usual", usual), ("huge", huge)):
                begin = time.perf_counter()
                decode(session, sources, options)
                times[kind].append(time.perf_counter() - begin)
        medians = {kind: 1000 * statistics.median(values[1:]) for kind, values in times.items()}
        ratio = medians["usual"] / medians["huge"]
        rows.add_row(name, f"{medians['usual']:.1f}", f"{medians['huge']:.1f}", f"{ratio:.2f}")
    console().print(rows)
    console().print(machine())


if __name__ == "__main__":
    main()
