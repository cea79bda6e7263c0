"""Measures a grid cell by cell, and saves the report after each cell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import product

import numpy as np
from rich.progress import Progress

from edgeformer.train.run import Run
from edgeformer_bench.grid.lineup import Lineup
from edgeformer_bench.grid.options import WORKLOADS, GridOptions
from edgeformer_bench.grid.report import Cell, Model, Report, Setting, SystemFacts
from edgeformer_bench.grid.start import measure_start
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.rounds import Contest, Workload, random_sources
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.cli.output import plural

EXPANSION = 1.5
"""Target tokens per source token."""
COMPARED = 8
"""Number of random sentences whose outputs are compared before anything is timed."""
COMPARED_LENGTH = 20
TURN_SECONDS = 0.05
"""A turn repeats short calls until this many seconds have passed."""
SEARCHES = {"greedy": 1, "beam 4": 4}
BASELINE = "edgeformer fp32"
"""The system that outputs are compared with."""


class Grid:
    """A grid being measured.

    Args:
        report: results so far; new results are added and saved.
        options: what to measure.
        progress: shows what is being done.
    """

    def __init__(self, report: Report, options: GridOptions, progress: Progress) -> None:
        self.report, self.options = report, options
        self._progress = progress
        self._task = progress.add_task("")
        self._lineup = Lineup(options, self._describe)

    def measure(self) -> None:
        """Measure what is missing in the report."""
        options = self.options
        missing = self._missing(self._settings())
        random = np.random.default_rng(1)
        for preset in options.presets:
            settings = [setting for setting in missing if setting.model == preset]
            if not settings and self.report.model(preset) is not None:
                continue
            run = self._lineup.random_run(preset)
            sources = partial(
                random_sources, random, vocab_size=run.source_tokenizer.vocab_size, eos=SpecialTokens().eos
            )
            self._add_model(preset, run, sources(COMPARED, COMPARED_LENGTH), round(EXPANSION * COMPARED_LENGTH))
            for threads in options.threads:
                cells = [setting for setting in settings if setting.threads == threads]
                if cells:
                    with self._contest(preset, run, threads) as contest:
                        for setting in cells:
                            workload = Workload(
                                beam_size=setting.beam_size,
                                sources=sources(setting.batch, setting.source_length),
                                length=setting.target_length,
                            )
                            self._add_cell(setting, contest, workload)

    def _settings(self) -> list[Setting]:
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
                options.presets, options.threads, options.lengths, options.workloads
            )
        ]

    def _missing(self, settings: Sequence[Setting]) -> list[Setting]:
        """Return the settings not measured yet, and start their progress."""
        missing = [setting for setting in settings if self.report.cell(setting) is None]
        self._progress.update(self._task, total=len(missing), completed=0)
        return missing

    def _contest(self, name: str, run: Run, threads: int) -> closing[Contest]:
        contenders, _ = self._lineup.contenders(name, run, threads)
        prefix = f"{name}, {plural(threads, 'thread')}: opening"
        return closing(Contest(contenders, lambda system: self._describe(f"{prefix} {system}")))

    def _add_cell(self, setting: Setting, contest: Contest, workload: Workload) -> None:
        """Measure a cell and save it."""
        label = f"{setting.model}, {plural(setting.threads, 'thread')}: {setting.workload}"
        finished = self._progress.tasks[self._task].completed
        self._describe(label)
        scores = contest.run(
            [workload],
            rounds=self.options.rounds,
            seconds=self.options.seconds,
            turn_seconds=TURN_SECONDS,
            first_token=True,
            progress=lambda fraction: self._progress.update(self._task, completed=finished + fraction),
        )
        self.report.cells.append(Cell.of(setting, scores))
        self.report.write(self.options.results)
        self._progress.update(self._task, completed=finished + 1)
        if not self._progress.console.is_terminal:
            self._progress.console.print(label)

    def _add_model(self, name: str, run: Run, compared: list[list[int]], length: int) -> None:
        """Measure and save what does not depend on the cell: size, start, memory, identical outputs.

        Args:
            name: name of the model.
            run: run of the model.
            compared: token ids of sentences whose outputs are compared.
            length: tokens to decode for each sentence.
        """
        if self.report.model(name) is not None:
            return
        contenders, errors = self._lineup.contenders(name, run, self.options.threads[0])
        facts = {
            contender.name: SystemFacts(system=contender.name, kind=contender.kind, weights=contender.weights)
            for contender in contenders
        }
        facts |= {system: SystemFacts(system=system, error=error) for system, error in errors.items()}
        self._compare_outputs(name, run, facts, compared, length)
        first = Workload(beam_size=1, sources=compared[:1], length=length)
        for contender in contenders:
            if not facts[contender.name].error:
                self._describe(f"{name}: starting {contender.name}")
                try:
                    facts[contender.name].start = measure_start(contender.specs[0], first, self.options.starts)
                except PeerError as error:
                    facts[contender.name].error = str(error)
        parameters = sum(parameter.numel() for parameter in run.load_model().parameters())
        systems = list(facts.values())
        self.report.models.append(
            Model(name=name, parameters=parameters, compared=len(compared), baseline=BASELINE, systems=systems)
        )
        self.report.write(self.options.results)

    def _compare_outputs(
        self, name: str, run: Run, facts: dict[str, SystemFacts], sources: list[list[int]], length: int
    ) -> None:
        """Count outputs that are identical to the baseline's."""
        with self._contest(name, run, self.options.threads[0]) as contest:
            for system, version in contest.versions.items():
                facts[system].version, facts[system].identical = version, {}
            for search, beam_size in SEARCHES.items():
                outputs = contest.outputs(Workload(beam_size=beam_size, sources=sources, length=length))
                if baseline := outputs.get(BASELINE):
                    for system, output in outputs.items():
                        same = sum(mine == expected for mine, expected in zip(output, baseline, strict=True))
                        facts[system].identical[search] = same
            for system, error in contest.errors.items():
                facts[system].error = error

    def _describe(self, text: str) -> None:
        self._progress.update(self._task, description=text)
