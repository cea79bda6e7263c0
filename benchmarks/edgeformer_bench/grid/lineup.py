"""The systems to compare for each model; missing bundles and converted models are created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgeformer.train.run import Run
from edgeformer_bench.grid.models import PRECISIONS, random_run
from edgeformer_bench.grid.options import OURS, GridOptions
from edgeformer_bench.peers.base import Contender, PeerError
from edgeformer_bench.peers.systems import PeerOptions, ours, peer
from edgeformer_export.export import export_run
from edgeformer_runtime.errors import EdgeformerError


class Lineup:
    """Contenders by model and threads.

    Args:
        options: options of the grid.
        report: called with a line of text before each slow step.
    """

    def __init__(self, options: GridOptions, report: Callable[[str], None]) -> None:
        self._options, self._report = options, report
        self._known: dict[tuple[str, int], tuple[list[Contender], dict[str, str]]] = {}

    def folder(self, name: str) -> Path:
        """Return the folder of a model's files."""
        return self._options.work / name

    def bundle(self, name: str, precision: str) -> Path:
        """Return a model's bundle in a precision."""
        return self.folder(name) / precision

    def random_run(self, preset: str) -> Run:
        """Return the run of a preset with random weights."""
        path = self.folder(preset) / "run"
        self._report(f"{preset}: making random weights")
        return Run.open(path) if path.exists() else random_run(path, preset, self._options.vocab_size)

    def contenders(self, name: str, run: Run, threads: int) -> tuple[list[Contender], dict[str, str]]:
        """Return contenders, and the reasons why other systems cannot take part.

        Args:
            name: name of the model.
            run: run of the model.
            threads: CPU threads per operator.
        """
        key = name, threads
        if key not in self._known:
            contenders, errors = self._bundles(name, run, threads) if OURS in self._options.systems else ([], {})
            settings = PeerOptions(threads=threads, pythons=self._options.pythons)
            for system in self._options.systems:
                if system != OURS:
                    self._report(f"{name}: converting for {system}")
                    try:
                        contenders += peer(system, run.path, self.folder(name), settings)
                    except PeerError as error:
                        errors[system] = str(error)
            self._known[key] = contenders, errors
        return self._known[key]

    def _bundles(self, name: str, run: Run, threads: int) -> tuple[list[Contender], dict[str, str]]:
        bundles, errors = {}, {}
        for precision in PRECISIONS:
            if precision in self._options.precisions:
                bundle, label = self.bundle(name, precision), f"{OURS} {precision}"
                self._report(f"{name}: exporting {precision}")
                try:
                    if not bundle.exists():
                        export_run(run, bundle, precision=precision)
                    bundles[label] = bundle
                except EdgeformerError as error:
                    errors[label] = str(error)
        return ours(bundles, threads), errors
