"""Measures a grid cell by cell."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from edgeformer.run.folder import Run
from edgeformer.run.info import library_versions
from edgeformer_bench.commands import command_line
from edgeformer_bench.grid.models import random_run
from edgeformer_bench.grid.report import Cell, Report, Setting, System
from edgeformer_bench.peers.base import Contender, PeerError, Spec
from edgeformer_bench.peers.process import PeerProcess
from edgeformer_bench.peers.systems import REFERENCE, PeerOptions, ours, peer
from edgeformer_bench.rounds import Contest, Result, Workload, ask, random_sources
from edgeformer_export.export import export_run
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.selfcheck.machine import machine_summary

PRESETS = ("tiny", "edge", "base")
WORKLOADS = {"1x1": (1, 1), "1x4": (1, 4), "32x1": (32, 1), "32x4": (32, 4)}
"""Sentences per call and hypotheses kept, by name."""
OURS = "edgeformer"
"""Name of the group of our bundles, used alongside the names of peers."""
BASELINE = "edgeformer fp32"
"""The system that outputs are compared with."""
EXPANSION = 1.5
"""Target tokens per source token."""
COMPARED, COMPARED_LENGTH = 8, 20
"""Number of random sentences whose outputs are compared before anything is timed, and their tokens."""
SEARCHES = {"greedy": 1, "beam 4": 4}
TURN_SECONDS = 0.05
"""A turn repeats short calls until this many seconds have passed."""


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """What to measure, and for how long."""

    presets: Sequence[str]
    """Entries of :data:`PRESETS`."""
    workloads: Sequence[str]
    """Keys of :data:`WORKLOADS`."""
    lengths: Sequence[int]
    """Source lengths in tokens."""
    threads: Sequence[int]
    systems: Sequence[str]
    """:data:`OURS` and names of peers."""
    precisions: Sequence[Precision]
    vocab_size: int
    rounds: int
    """Measured rounds per cell."""
    seconds: float
    """Time limit per cell, in seconds."""
    starts: int
    """Number of fresh processes per system, to measure start time and memory."""
    pythons: Mapping[str, str]
    """Python interpreters of peers that have an environment of their own; empty for the current one."""

    @property
    def settings(self) -> list[Setting]:
        """All cells, in the order in which they are measured."""
        return [
            Setting(
                model=preset,
                threads=threads,
                batch=WORKLOADS[workload][0],
                beam_size=WORKLOADS[workload][1],
                source_length=length,
                target_length=round(EXPANSION * length),
            )
            for preset, threads, length, workload in product(self.presets, self.threads, self.lengths, self.workloads)
        ]


def measure(options: GridOptions) -> Iterator[Report]:
    """Measure a grid; yield its report at the beginning and again after each cell."""
    versions = library_versions("onnxruntime", "ctranslate2")
    report = Report(machine=machine_summary(), versions=versions, vocab_size=options.vocab_size, command=command_line())
    random = np.random.default_rng(1)
    yield report
    for preset in options.presets:
        with TemporaryDirectory() as folder:
            run = random_run(Path(folder) / "run", preset, options.vocab_size)
            vocab_size = run.source_tokenizer.vocab_size
            draw = partial(random_sources, random, vocab_size=vocab_size, eos=SpecialTokens().eos)
            for threads in options.threads:
                contenders, errors = _contenders(run, Path(folder), threads, options)
                with closing(Contest(contenders)) as contest:
                    if threads == options.threads[0]:
                        report.systems += [System(model=preset, system=name, error=error) for name, error in errors]
                        sources = draw(COMPARED, COMPARED_LENGTH)
                        report.systems += _compared(preset, contest, contenders, sources, options)
                    for setting in options.settings:
                        if (setting.model, setting.threads) == (preset, threads):
                            sources = draw(setting.batch, setting.source_length)
                            report.cells.append(_cell(setting, contest, sources, options))
                            yield report


def _cell(setting: Setting, contest: Contest, sources: list[list[int]], options: GridOptions) -> Cell:
    workload = Workload(beam_size=setting.beam_size, sources=sources, length=setting.target_length)
    scores = contest.run([workload], rounds=options.rounds, seconds=options.seconds, turn_seconds=TURN_SECONDS)
    return Cell(setting=setting, results=list(Result.of(scores, REFERENCE).values()))


def _contenders(
    run: Run, folder: Path, threads: int, options: GridOptions
) -> tuple[list[Contender], list[tuple[str, str]]]:
    """Return contenders, whose bundles and converted models are made first, and why other systems cannot take part."""
    bundles: dict[str, Path] = {}
    contenders: list[Contender] = []
    errors: list[tuple[str, str]] = []
    for precision in options.precisions if OURS in options.systems else ():
        label, bundle = f"{OURS} {precision}", folder / precision
        try:
            if not bundle.exists():
                export_run(run, bundle, precision=precision)
            bundles[label] = bundle
        except EdgeformerError as error:
            errors.append((label, str(error)))
    settings = PeerOptions(threads=threads, pythons=options.pythons)
    for system in options.systems:
        if system != OURS:
            try:
                contenders += peer(system, run.path, folder, settings)
            except PeerError as error:
                errors.append((system, str(error)))
    return [*ours(bundles, threads), *contenders], errors


def _compared(
    preset: str, contest: Contest, contenders: Sequence[Contender], sources: list[list[int]], options: GridOptions
) -> list[System]:
    """Compare outputs with the baseline's, and measure what does not depend on the cell: size, start, memory."""
    length = round(EXPANSION * COMPARED_LENGTH)
    versions = contest.versions
    names = [contender.name for contender in contenders]
    systems = {name: System(model=preset, system=name, version=versions.get(name, "")) for name in names}
    for search, beam_size in SEARCHES.items():
        outputs = contest.outputs(Workload(beam_size=beam_size, sources=sources, length=length))
        for name, output in outputs.items() if BASELINE in outputs else ():
            same = sum(mine == expected for mine, expected in zip(output, outputs[BASELINE], strict=True))
            systems[name].identical[search] = same
    first = Workload(beam_size=1, sources=sources[:1], length=length)
    for contender in contenders:
        system = systems[contender.name]
        system.error = contest.errors.get(contender.name, "")
        if not system.error:
            try:
                system.seconds, system.peak_mb = start(contender.specs[0], first, options.starts)
                system.bytes = model_bytes(contender.specs[0])
            except PeerError as error:
                system.error = str(error)
    return list(systems.values())


def start(spec: Spec, workload: Workload, repeat: int) -> tuple[float, float | None]:
    """Start a system in fresh processes, each of which runs a workload once.

    Returns:
        Median of the seconds from the start of the process, imports included, to the end of the workload; and of the
        peak resident memory in 10^6 bytes, ``None`` where the system does not report it.

    Raises:
        PeerError: the system cannot be started, or fails.
    """
    seconds, peaks = [], []
    for _ in range(repeat):
        begin = time.perf_counter()
        with closing(PeerProcess(spec)) as process:
            ask(process, workload)
            seconds.append(time.perf_counter() - begin)
            peaks.append(process.ask("memory")["peak_mb"])
    return statistics.median(seconds), None if None in peaks else statistics.median(peaks)


def model_bytes(spec: Spec) -> int:
    """Compute the size of a model's files in bytes; for a run folder, that of its weights and tokenizers."""
    path = Path(spec.model)
    files = [*path.glob("model.safetensors"), *path.glob("*tokenizer.*")] if spec.kind == "torch" else path.iterdir()
    return sum(file.stat().st_size for file in files)
