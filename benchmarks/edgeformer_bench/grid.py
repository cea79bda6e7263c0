"""edgeformer against the fastest peers: the same weights, tokens and threads, in one run. Run it with ``make bench``.

Every system runs in a process of its own. In each round all of them do the same work in turn, so that a slow moment of
the machine meets all; times are medians over rounds. Presets have random weights, and every output is as long as it is
said to be. Each finished cell is saved at once: a run that was stopped goes on with ``--resume``.

    python -m edgeformer_bench.grid                            # two presets, four workloads, one thread
    python -m edgeformer_bench.grid --full                     # three presets, three lengths, one and two threads
    python -m edgeformer_bench.grid --no-grid --run RUN --source FILE       # from text to text with a trained model
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from edgeformer.data.text import read_lines
from edgeformer.errors import ConfigError
from edgeformer.train.run import Run, library_versions
from edgeformer_bench.bandwidth import read_bandwidth
from edgeformer_bench.grid_models import PRECISIONS, random_run, random_sources, step_bytes
from edgeformer_bench.grid_page import page
from edgeformer_bench.grid_report import Cell, Model, Report, Setting, SystemFacts, problems, resumed, tables
from edgeformer_bench.latency import machine
from edgeformer_bench.peers.base import PEERS, PeerError
from edgeformer_bench.rounds import Contender, Contest, Workload
from edgeformer_bench.start import measure_start
from edgeformer_bench.systems import ours, peer
from edgeformer_export.export import export_run
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.engine.onnx_session import available_cpus
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.files import write_atomically

PRESETS = ("tiny", "edge", "base")
WORKLOADS = {"1x1": (1, 1), "1x4": (1, 4), "32x1": (32, 1), "32x4": (32, 4)}
"""Sentences of a call and hypotheses kept, by name."""
LENGTHS = (10, 20, 60)
THREADS = (1, 2)
EXPANSION = 1.5
"""Target tokens for each source token."""
COMPARED = 8
"""Sentences whose outputs are compared before anything is timed."""
COMPARED_LENGTH = 20
TURN_SECONDS = 0.05
"""A turn repeats short calls for so long."""
TEXT_PEERS = ("ctranslate2", "torch")
"""Those that go from text to text by themselves."""
SLOW = "torch-compile"
"""Takes minutes to compile, for each number of rows anew; measured with --full, or when it is asked for."""
TEXT_BEAM = 4
SEARCHES = {"greedy": 1, "beam 4": 4}
OURS = "edgeformer"
BASELINE = "edgeformer fp32"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to measure, and how long."""

    work: Path
    """Folder of the models."""
    results: Path
    """File to save to."""
    workloads: Sequence[str]
    """Keys of :data:`WORKLOADS`."""
    lengths: Sequence[int]
    """Source lengths."""
    threads: Sequence[int]
    """Numbers of threads."""
    systems: Sequence[str]
    """:data:`OURS` and names of peers."""
    precisions: Sequence[str]
    """Of our bundles."""
    rounds: int
    """Measured rounds of a cell."""
    seconds: float
    """Time for a cell, if there are rounds enough by then."""
    starts: int
    """Fresh processes for load time and memory."""
    optimum_python: str
    """Interpreter that has Optimum; this one if empty."""


class Bench:
    """Measures cell by cell, and saves after each."""

    def __init__(self, report: Report, options: Options, progress: Progress) -> None:
        self.report, self.options = report, options
        self._progress = progress
        self._task = progress.add_task("")
        self._contenders: dict[tuple[str, int, bool], tuple[list[Contender], dict[str, str]]] = {}

    def settings(self, presets: Sequence[str]) -> list[Setting]:
        """All cells of the grid."""
        options = self.options
        return [
            Setting(
                model=preset,
                threads=threads,
                batch=WORKLOADS[workload][0],
                beam_size=WORKLOADS[workload][1],
                source_length=length,
                target_length=round(EXPANSION * length),
            )
            for preset, threads, length, workload in product(
                presets, options.threads, options.lengths, options.workloads
            )
        ]

    def grid(self, presets: Sequence[str]) -> None:
        """Measure the presets."""
        settings = self.settings(presets)
        missing = [setting for setting in settings if self.report.cell(setting) is None]
        self._progress.update(self._task, total=len(missing), completed=0)
        for preset in presets:
            here = [setting for setting in missing if setting.model == preset]
            if here or self.report.model(preset) is None:
                run = self._random_run(preset)
                random = np.random.default_rng(1)
                vocabulary, eos = run.source_tokenizer.vocab_size, SpecialTokens().eos
                self._know(preset, run, random_sources(random, COMPARED, COMPARED_LENGTH, vocabulary, eos), forced=True)
                for threads in self.options.threads:
                    cells = [setting for setting in here if setting.threads == threads]
                    if cells:
                        with self._contest(preset, run, threads) as contest:
                            for setting in cells:
                                sources = random_sources(random, setting.batch, setting.source_length, vocabulary, eos)
                                workload = Workload(
                                    beam_size=setting.beam_size, sources=sources, length=setting.target_length
                                )
                                self._measure(setting, contest, workload, first_token=True)

    def text(self, run: Run, texts: Sequence[str]) -> None:
        """Measure a trained run from text to text."""
        name, sorted_texts = run.path.name, sorted(texts, key=len)
        orders = {"as given": texts, "sorted by length": sorted_texts}
        settings = {
            Setting(model=name, threads=threads, beam_size=TEXT_BEAM, batch=len(texts), order=order): orders[order]
            for threads in self.options.threads
            for order in orders
        }
        missing = [setting for setting in settings if self.report.cell(setting) is None]
        self._progress.update(self._task, total=len(missing), completed=0)
        if missing or self.report.model(name) is None:
            compared = run.source_tokenizer.encode_batch(texts[:: max(1, len(texts) // 64)], end_token=True)
            self._know(name, run, compared, forced=False)
        for threads in self.options.threads:
            cells = [setting for setting in missing if setting.threads == threads]
            if cells:
                with self._contest(name, run, threads, texts=True) as contest:
                    for setting in cells:
                        workload = Workload(beam_size=TEXT_BEAM, texts=settings[setting])
                        self._measure(setting, contest, workload, first_token=False)

    def _measure(self, setting: Setting, contest: Contest, workload: Workload, *, first_token: bool) -> None:
        label = f"{setting.model}, {setting.threads} thread(s): {setting.workload}"
        finished = self._progress.tasks[self._task].completed
        self._progress.update(self._task, description=label)
        scores = contest.run(
            [workload],
            rounds=self.options.rounds,
            seconds=self.options.seconds,
            turn_seconds=TURN_SECONDS,
            first_token=first_token,
            progress=lambda fraction: self._progress.update(self._task, completed=finished + fraction),
        )
        self.report.cells.append(Cell.of(setting, scores))
        self._save()
        self._progress.update(self._task, completed=finished + 1)
        if not self._progress.console.is_terminal:
            self._progress.console.print(label)

    def _know(self, name: str, run: Run, compared: list[list[int]], *, forced: bool) -> None:
        """Find out what does not depend on the cell: size, start, memory, and whether outputs are the same."""
        if self.report.model(name) is not None:
            return
        length = round(EXPANSION * COMPARED_LENGTH) if forced else None
        threads = self.options.threads[0]
        contenders, errors = self._all(name, run, threads)
        facts = {contender.name: SystemFacts(system=contender.name) for contender in contenders}
        facts |= {system: SystemFacts(system=system, error=error) for system, error in errors.items()}
        identical: dict[str, dict[str, int]] = {system: {} for system in facts}
        with self._contest(name, run, threads) as contest:
            for search, beam_size in SEARCHES.items():
                outputs = contest.outputs(Workload(beam_size=beam_size, sources=compared, length=length))
                if baseline := outputs.get(BASELINE):
                    for system, output in outputs.items():
                        pairs = zip(output, baseline, strict=True)
                        identical[system][search] = sum(one == other for one, other in pairs)
            for system, version_of_engine in contest.versions.items():
                facts[system].version, facts[system].identical = version_of_engine, identical[system]
            for system, error in contest.errors.items():
                facts[system].error = error
        fp32 = step_bytes(self._folder(name) / "fp32") if "fp32" in self.options.precisions else 0
        for contender in contenders:
            about = facts[contender.name]
            if not about.error:
                self._progress.update(self._task, description=f"{name}: starting {contender.name}")
                first = Workload(beam_size=1, sources=compared[:1], length=length)
                try:
                    about.start = measure_start(contender.specs[0], first, self.options.starts)
                except PeerError as error:
                    about.error = str(error)
                is_ours = contender.specs[0].kind == "bundle"
                quarter = 4 if contender.name.endswith("int8") else 1
                about.step_bytes = step_bytes(Path(contender.specs[0].model)) if is_ours else fp32 // quarter
        parameters = sum(parameter.numel() for parameter in run.load_model().parameters())
        systems = list(facts.values())
        self.report.models.append(
            Model(name=name, parameters=parameters, compared=len(compared), baseline=BASELINE, systems=systems)
        )
        self._save()

    @contextmanager
    def _contest(self, name: str, run: Run, threads: int, texts: bool = False) -> Iterator[Contest]:
        """All systems, opened."""
        contenders, _ = self._all(name, run, threads, texts)
        started: Callable[[str], None] = lambda system: self._progress.update(  # noqa: E731  # a note, not a function
            self._task, description=f"{name}, {threads} thread(s): opening {system}"
        )
        with Contest(contenders, started) as contest:
            yield contest

    def _all(self, name: str, run: Run, threads: int, texts: bool = False) -> tuple[list[Contender], dict[str, str]]:
        """Contenders, and why others are not among them; bundles and converted models are made if they are missing."""
        key = name, threads, texts
        if key not in self._contenders:
            folder, errors = self._folder(name), dict[str, str]()
            contenders = self._bundles(name, run, threads, errors) if OURS in self.options.systems else []
            for system in self.options.systems:
                if system != OURS and (not texts or system in TEXT_PEERS):
                    self._progress.update(self._task, description=f"{name}: converting for {system}")
                    try:
                        python = self.options.optimum_python
                        contenders += peer(system, run.path, folder, threads, texts=texts, python=python)
                    except PeerError as error:
                        errors[system] = str(error)
            self._contenders[key] = contenders, errors
        return self._contenders[key]

    def _bundles(self, name: str, run: Run, threads: int, errors: dict[str, str]) -> list[Contender]:
        found = {}
        for precision in PRECISIONS:
            if precision in self.options.precisions:
                bundle, label = self._folder(name) / precision, f"{OURS} {precision}"
                self._progress.update(self._task, description=f"{name}: exporting {precision}")
                try:
                    if not bundle.exists():
                        export_run(run, bundle, precision=precision)
                    found[label] = bundle
                except EdgeformerError as error:
                    errors[label] = str(error)
        return ours(found, threads)

    def _random_run(self, preset: str) -> Run:
        path = self._folder(preset) / "run"
        self._progress.update(self._task, description=f"{preset}: making random weights")
        return Run.open(path) if path.exists() else random_run(path, preset, self.report.vocab_size)

    def _folder(self, name: str) -> Path:
        return self.options.work / name

    def _save(self) -> None:
        self.report.write(self.options.results)


def _versions() -> dict[str, str]:
    versions = library_versions()
    for name in ("onnxruntime", "ctranslate2"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/bench"), show_default=True, help="Folder.")
@click.option("--preset", "presets", multiple=True, type=click.Choice(PRESETS), help="Default: edge and base.")
@click.option("--workload", "workloads", multiple=True, type=click.Choice(list(WORKLOADS)), help="Batch x beam; all.")
@click.option("--length", "lengths", multiple=True, type=click.IntRange(2, 64), help="Source tokens; default: 20.")
@click.option("--threads", multiple=True, type=click.IntRange(1), help="Default: 1.")
@click.option(
    "--system", "systems", multiple=True, type=click.Choice((OURS, *PEERS)), help="Default: all but torch-compile."
)
@click.option("--precision", "precisions", multiple=True, type=click.Choice(PRECISIONS), help="Ours; default: all.")
@click.option(
    "--full", is_flag=True, help="All presets and systems, lengths 10, 20 and 60, one and two threads: hours."
)
@click.option("--grid/--no-grid", default=True, help="Measure the presets.", show_default=True)
@click.option("--run", "run_folder", type=click.Path(path_type=Path), help="A trained run, to measure with --source.")
@click.option("--source", type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(1), help="Sentences of --source.")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Measured rounds of a cell.")
@click.option("--seconds", default=40.0, show_default=True, help="End a cell after so long, and three rounds.")
@click.option("--starts", default=3, show_default=True, type=click.IntRange(1), help="Fresh processes of each system.")
@click.option("--vocab-size", default=32_000, show_default=True, type=click.IntRange(1000), help="Of the presets.")
@click.option("--optimum-python", default="", help="Interpreter of an environment with Optimum; default: this one.")
@click.option("--resume", is_flag=True, help="Go on with what is in OUT; else it is measured, and exported, anew.")
def main(
    out: Path,
    presets: tuple[str, ...],
    workloads: tuple[str, ...],
    lengths: tuple[int, ...],
    threads: tuple[int, ...],
    systems: tuple[str, ...],
    precisions: tuple[str, ...],
    full: bool,
    grid: bool,
    run_folder: Path | None,
    source: Path | None,
    limit: int,
    rounds: int,
    seconds: float,
    starts: int,
    vocab_size: int,
    optimum_python: str,
    resume: bool,
) -> None:
    """Compare edgeformer with its peers; write OUT/bench.json and OUT/bench.html."""
    if (run_folder is None) != (source is None):
        raise click.UsageError("--run and --source belong together.")
    wanted = threads or (THREADS if full else THREADS[:1])
    usable = tuple(count for count in wanted if count <= available_cpus())
    if not usable:
        raise click.UsageError(f"This machine has {available_cpus()} CPUs; give --threads not more.")
    options = Options(
        work=out / "models",
        results=out / "bench.json",
        workloads=workloads or tuple(WORKLOADS),
        lengths=lengths or (LENGTHS if full else LENGTHS[1:2]),
        threads=usable,
        systems=systems or tuple(name for name in (OURS, *PEERS) if full or name != SLOW),
        precisions=precisions or PRECISIONS,
        rounds=rounds,
        seconds=seconds,
        starts=starts,
        optimum_python=optimum_python,
    )
    report = Report(
        machine=machine(),
        versions=_versions(),
        systems=list(options.systems),
        vocab_size=vocab_size,
        commands=[shlex.join(["python", *sys.argv])],
    )
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()]
    try:
        if resume:
            report = resumed(options.results, report)
        else:
            _clear(options.work)
        if not report.bandwidth:
            report.bandwidth = read_bandwidth(sorted({1, *usable}))
        with Progress(*columns, console=Console(stderr=True), refresh_per_second=1) as progress:
            bench = Bench(report, options, progress)
            if grid:
                bench.grid(presets or (PRESETS if full else PRESETS[1:]))
            if run_folder is not None and source is not None:
                texts = [text for text in read_lines(source)[:limit] if text.strip()]
                if not texts:
                    raise ConfigError(f"`{source}` has no sentence to translate.")
                bench.text(Run.open(run_folder.absolute()), texts)
    except EdgeformerError as error:
        raise click.ClickException(str(error)) from None
    write_atomically(options.results.with_suffix(".html"), page(report).encode())
    for rows in tables(report):
        shown = table(rows.title, *rows.columns)
        shown.columns[0].min_width = max((len(row[0]) for row in rows.rows), default=0)
        for row in rows.rows:
            shown.add_row(*row)
        console().print(shown)
    for line in problems(report):
        console().print(line)
    console().print(f"{report.machine}; {options.results}, {options.results.with_suffix('.html')}")


def _clear(work: Path) -> None:
    """Remove the models of an earlier run, so that none is older than the code."""
    marker = work / ".bench"
    if work.exists() and any(work.iterdir()) and not marker.exists():
        raise ConfigError(f"`{work}` holds something that no benchmark has made; choose another --out.")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    marker.touch()


if __name__ == "__main__":
    main()
