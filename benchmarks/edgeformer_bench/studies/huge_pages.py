"""Measures the benefit of huge pages: one bundle opened twice, with its weights in default pages and in huge pages.

Usage: ``python -m edgeformer_bench.studies.huge_pages BUNDLE``
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from threading import enumerate as running_threads
from unittest import mock

import click
import numpy as np

from edgeformer_bench.commands import Command
from edgeformer_bench.rounds import random_sources
from edgeformer_bench.timer import Timing, alternate, timed
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine import onnx_session
from edgeformer_runtime.engine.huge_pages import THREAD_NAME
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.selfcheck.machine import machine_summary

WORKLOADS = {"1 sentence, greedy": (1, 1), "1 sentence, beam 4": (1, 4), "32 sentences, greedy": (32, 1)}
SOURCE_LENGTH, TARGET_LENGTH = 20, 30


@click.command(cls=Command)
@click.argument("path", metavar="BUNDLE", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(3), help="Measured rounds per workload.")
def main(path: Path, rounds: int) -> None:
    """Time BUNDLE with and without huge pages, in alternating rounds on one thread.

    Sources are 20 random tokens, outputs have 30 tokens; times are medians.
    """
    bundle = open_bundle(path)
    huge = OnnxSession(bundle, threads=1)
    with mock.patch.object(onnx_session, "huge_pages", nullcontext):
        default = OnnxSession(bundle, threads=1)
    for thread in running_threads():
        if thread.name == THREAD_NAME:
            thread.join()
    random = np.random.default_rng(1)
    rows = table(str(path), "", "default pages, ms", "huge pages, ms", "speed")
    manifest = bundle.manifest
    for name, (sentences, beam_size) in WORKLOADS.items():
        sources = random_sources(random, sentences, SOURCE_LENGTH, manifest.source_vocab_size, manifest.special.eos)
        options = DecodeOptions(beam_size=beam_size, min_length=TARGET_LENGTH, max_length=TARGET_LENGTH)
        turns = {
            pages: timed(partial(decode, session, sources, options))
            for pages, session in (("default", default), ("huge", huge))
        }
        medians = {pages: Timing.of(times).median_ms for pages, times in alternate(turns, rounds=rounds).items()}
        ratio = medians["default"] / medians["huge"]
        rows.add_row(name, f"{medians['default']:.1f}", f"{medians['huge']:.1f}", f"{ratio:.2f}")
    console().print(rows)
    console().print(machine_summary())


if __name__ == "__main__":
    main()
