"""Profiles a bundle's decoder step by operator, with ONNX Runtime's own profiler.

Usage: ``python -m edgeformer_bench.studies.operator_profile BUNDLE --sentences 1 --beam 4``
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime as ort

from edgeformer_bench.commands import Command
from edgeformer_bench.rounds import random_sources
from edgeformer_bench.timer import alternate
from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.cli.output import console, plural, table
from edgeformer_runtime.decoding.loop import Counters, decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.selfcheck.machine import machine_summary

SOURCE_LENGTH, TARGET_LENGTH = 20, 30
PRODUCTS = ("MatMul", "Gemm")
"""Substrings of the names of matrix products, which are distinguished by the shape of their output."""


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """An operator's share of a decoder step."""

    name: str
    """Name of the operator; for matrix products, with the width of the output."""
    calls: float
    """Calls per step."""
    microseconds: float
    """Time of all calls in a step, excluding profiler overhead."""


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Times of a decoder step in microseconds, averaged over a whole decode."""

    operators: list[OperatorTime]
    """Operators of the decoder graph, most expensive first."""
    search: list[OperatorTime]
    """Operators of the graph that selects beam search's tokens; empty for greedy search."""
    step: float
    """Time of the decoder graph without the profiler; less than the sum over operators, since profiling slows down
    large matrix products."""
    host: float
    """Time of search and copies per step."""


class ProfiledSession(OnnxSession):
    """A session whose graphs write profiles to a folder."""

    def __init__(self, bundle: Bundle, folder: Path, threads: int) -> None:
        self._folder = folder
        super().__init__(bundle, threads=threads)

    def _session_options(self, threads: int) -> ort.SessionOptions:
        options = super()._session_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(self._folder / "profile")
        return options

    def end(self) -> tuple[Path, Path]:
        """End the profiles of encoder and decoder, and return their files. The search profile ends with the session."""
        return Path(self._graphs.encoder.end_profiling()), Path(self.step_graph.session.end_profiling())


def profile(bundle: Bundle, *, sentences: int, beam_size: int, threads: int = 1, repeat: int = 10) -> StepProfile:
    """Decode random sources with and without the profiler, in alternating rounds.

    The profiler adds a few microseconds to every operator, estimated as the time of the cheapest operator of the graph,
    which moves no data.

    Args:
        bundle: an open bundle.
        sentences: sentences per batch.
        beam_size: hypotheses kept.
        threads: CPU threads per operator.
        repeat: number of decodes.
    """
    manifest = bundle.manifest
    source_length = min(SOURCE_LENGTH, manifest.max_source_length)
    target_length = min(TARGET_LENGTH, manifest.max_target_length)
    random, eos = np.random.default_rng(1), manifest.special.eos
    sources = random_sources(random, sentences, source_length, manifest.source_vocab_size, eos)
    options = DecodeOptions(
        beam_size=beam_size,
        min_length=target_length,
        max_length=target_length,
        max_batch_tokens=sentences * beam_size * source_length,
        return_scores=False,
    )

    plain, counters, profiled_counters = OnnxSession(bundle, threads=threads), Counters(), Counters()
    decode(plain, sources, options)  # the first decode allocates memory
    with tempfile.TemporaryDirectory() as folder:
        profiled = ProfiledSession(bundle, Path(folder), threads)
        turns = {
            "plain": partial(decode, plain, sources, options, counters),
            "profiled": partial(decode, profiled, sources, options, profiled_counters),
        }
        alternate(turns, rounds=repeat, warmup=0)  # a profile cannot leave out a warm-up
        del turns
        encoder, decoder = profiled.end()
        del profiled
        gc.collect()
        operators = _operators(decoder, profiled_counters.steps)
        search_files = [file for file in Path(folder).iterdir() if file not in (encoder, decoder)]
        search = _operators(search_files[0], profiled_counters.steps) if search_files else []
    return StepProfile(
        operators=operators,
        search=search,
        step=1e6 * counters.decoder_seconds / counters.steps,
        host=1e6 * counters.host_seconds / counters.steps,
    )


def _operators(file: Path, steps: int) -> list[OperatorTime]:
    events = json.loads(file.read_text(encoding="utf-8"))
    by_node, name_of = defaultdict[str, list[float]](list), dict[str, str]()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            by_node[event["name"]].append(event["dur"])
            name_of.setdefault(event["name"], _name(event["args"]))
    own_time = min(statistics.median(times) for times in by_node.values())
    calls, total = defaultdict[str, int](int), defaultdict[str, float](float)
    for node, times in by_node.items():
        calls[name_of[node]] += len(times)
        total[name_of[node]] += max(0.0, sum(times) - own_time * len(times))
    return sorted(
        (
            OperatorTime(name=name, calls=count / steps, microseconds=total[name] / steps)
            for name, count in calls.items()
        ),
        key=lambda operator: -operator.microseconds,
    )


def _name(arguments: dict[str, Any]) -> str:
    name = str(arguments["op_name"])
    if any(part in name for part in PRODUCTS):
        shapes = [next(iter(output.values())) for output in arguments["output_type_shape"]]
        name += f" to {shapes[0][-1]:,}"
    return name


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--sentences", default=1, show_default=True, type=click.IntRange(1), help="Sentences per batch.")
@click.option("--beam", default=1, show_default=True, type=click.IntRange(1), help="Hypotheses kept per sentence.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="CPU threads per operator.")
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1), help="Number of decodes.")
def main(bundle: Path, sentences: int, beam: int, threads: int, repeat: int) -> None:
    """Show the operators of a decoder step of BUNDLE and their times."""
    step = profile(open_bundle(bundle), sentences=sentences, beam_size=beam, threads=threads, repeat=repeat)
    size = f"{plural(sentences, 'sentence')}, beam {beam}"
    for title, operators in (("decoder step", step.operators), ("search", step.search)):
        rows = table(f"{bundle}: {title} in the profiler, {size}", "", "calls", "µs", "share %")
        whole = sum(operator.microseconds for operator in operators)
        for operator in operators:
            share = 100 * operator.microseconds / whole
            rows.add_row(operator.name, f"{operator.calls:g}", f"{operator.microseconds:.0f}", f"{share:.1f}")
        if operators:
            console().print(rows)
    console().print(f"Without the profiler: {step.step:.0f} µs, and {step.host:.0f} µs for search and copies.")
    console().print(machine_summary())


if __name__ == "__main__":
    main()
