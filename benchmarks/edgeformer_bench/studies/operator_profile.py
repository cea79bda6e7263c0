"""Where the time of a bundle's decoder step goes, operator by operator, by ONNX Runtime's own profiler.

Usage: ``python -m edgeformer_bench.studies.operator_profile BUNDLE --sentences 1 --beam 4``
"""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime as ort

from edgeformer_bench.grid_models import random_sources
from edgeformer_bench.latency import machine
from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.decoding.loop import Counters, decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import EdgeformerError

SOURCE_LENGTH, TARGET_LENGTH = 20, 30
PRODUCTS = ("MatMul", "Gemm")
"""Parts of the names of matrix products, which are told apart by the shape of their output."""


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """An operator's part of a step."""

    name: str
    """Operator, with the shape of its output if it is a product."""
    calls: float
    """Calls in a step."""
    microseconds: float
    """All of them together; the profiler's own time is taken off."""


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """A step, in microseconds, as the mean over a whole decode."""

    operators: list[OperatorTime]
    """Of the decoder graph, the most expensive first."""
    search: list[OperatorTime]
    """Of the graph that picks beam search's tokens; empty for greedy search."""
    step: float
    """The decoder graph without the profiler, which slows large products too: all operators may take longer."""
    host: float
    """Search and copies between two steps."""


class ProfiledSession(OnnxSession):
    """A session whose graphs write profiles into a folder."""

    def __init__(self, bundle: Bundle, folder: Path, threads: int) -> None:
        self._folder = folder
        super().__init__(bundle, threads=threads)

    def _session_options(self, threads: int) -> ort.SessionOptions:
        options = super()._session_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(self._folder / "profile")
        return options

    def end(self) -> tuple[Path, Path]:
        """End the profiles of encoder and decoder; their files. That of the search ends with the session."""
        return Path(self._encoder.end_profiling()), Path(self._decoder.end_profiling())


def profile(bundle: Bundle, *, sentences: int, beam_size: int, threads: int = 1, repeat: int = 10) -> StepProfile:
    """Decode random sources, plainly and with the profiler, in turn.

    The profiler adds some microseconds to every operator. They are taken to be the time of the cheapest operator of the
    graph, one that moves no data.

    Args:
        bundle: an open bundle.
        sentences: of one batch.
        beam_size: hypotheses kept.
        threads: CPU threads of one operator.
        repeat: decodes.
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

    plain, counters = OnnxSession(bundle, threads=threads), Counters()
    with tempfile.TemporaryDirectory() as folder:
        profiled, ignored = ProfiledSession(bundle, Path(folder), threads), Counters()
        decode(plain, sources, options)  # the first pays for memory
        for _ in range(repeat):  # in turn, so that a slow moment of the machine meets both
            decode(plain, sources, options, counters)
            decode(profiled, sources, options, ignored)
        encoder, decoder = profiled.end()
        del profiled
        gc.collect()
        operators = _operators(decoder, ignored.steps)
        others = [file for file in Path(folder).iterdir() if file not in (encoder, decoder)]
        search = _operators(others[0], ignored.steps) if others else []
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


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--sentences", default=1, show_default=True, type=click.IntRange(1), help="Of one batch.")
@click.option("--beam", default=1, show_default=True, type=click.IntRange(1), help="Hypotheses kept.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="CPU threads.")
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1), help="Decodes.")
def main(bundle: Path, sentences: int, beam: int, threads: int, repeat: int) -> None:
    """Show the operators of a decoder step of BUNDLE, and how long they take."""
    try:
        found = profile(open_bundle(bundle), sentences=sentences, beam_size=beam, threads=threads, repeat=repeat)
    except EdgeformerError as error:
        raise click.ClickException(str(error)) from None
    for title, operators in (("a step", found.operators), ("its search", found.search)):
        rows = table(f"{bundle}: {title}, {sentences} x {beam} row(s), in the profiler", "", "calls", "µs", "share")
        whole = sum(one.microseconds for one in operators)
        for one in operators:
            rows.add_row(one.name, f"{one.calls:g}", f"{one.microseconds:.0f}", f"{one.microseconds / whole:.1%}")
        if operators:
            console().print(rows)
    console().print(f"Without it: {found.step:.0f} µs, and {found.host:.0f} µs for search and copies. {machine()}")


if __name__ == "__main__":
    main()
