"""The results of a grid, saved to a file from which a later run can resume."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench import rounds
from edgeformer_bench.grid.start import Start
from edgeformer_bench.peers.base import Kind, Weights
from edgeformer_bench.peers.systems import REFERENCE
from edgeformer_bench.rounds import Score
from edgeformer_bench.timer import Timing
from edgeformer_runtime.files import write_atomically


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """One cell of the grid, independent of the system."""

    model: str
    """A preset with random weights."""
    threads: int
    """CPU threads per operator."""
    beam_size: int
    """Hypotheses kept; 1 is greedy."""
    batch: int
    """Sentences per call."""
    source_length: int
    """Tokens of each source, end token included."""
    target_length: int
    """Tokens decoded for each sentence."""

    @property
    def search(self) -> str:
        """Describe the search: ``greedy``, or the beam size."""
        return "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"

    @property
    def workload(self) -> str:
        """Describe the setting without model and threads."""
        return f"batch {self.batch}, {self.search}, {self.source_length} → {self.target_length} tokens"


class Result(rounds.Result, kw_only=True):
    """One system in one cell, with speeds relative to :data:`~edgeformer_bench.peers.systems.REFERENCE`."""

    first_token_ms: float | None = None
    """Median time of a call that decodes one token: the encoder and one step."""

    def step_ms(self, target_length: int) -> float | None:
        """Compute the mean time of a step after the first, from calls that decode ``target_length`` tokens."""
        if self.timing is None or self.first_token_ms is None or target_length < 2:
            return None
        return (self.timing.median_ms - self.first_token_ms) / (target_length - 1)


class Cell(msgspec.Struct, kw_only=True):
    """All systems under one setting."""

    setting: Setting
    """What was measured."""
    results: list[Result]
    """One per system."""

    @classmethod
    def of(cls, setting: Setting, scores: dict[str, Score]) -> Cell:
        """Create the cell from the scores of a contest."""
        results = Result.of(scores, REFERENCE)
        for name, score in scores.items():
            if score.first_seconds:
                results[name].first_token_ms = Timing.of(score.first_seconds).median_ms
        return cls(setting=setting, results=list(results.values()))

    def per_second(self, result: Result) -> float | None:
        """Return target tokens per second."""
        if result.timing is None:
            return None
        return self.setting.batch * self.setting.target_length / result.timing.median_ms * 1000


class SystemFacts(msgspec.Struct, kw_only=True):
    """Information about a system with one model, apart from its times."""

    system: str
    """Its name."""
    kind: Kind | None = None
    """What runs the model; ``None`` if there is no model to run."""
    weights: Weights | None = None
    """How a peer stores its weights; ``None`` for bundles."""
    version: str = ""
    """The engine and its version."""
    start: Start | None = None
    """Measurements of a fresh process up to its first translation."""
    identical: dict[str, int] = {}
    """Number of sentences with the same output as the baseline's, by search."""
    error: str = ""
    """Why the system does not take part."""


class Model(msgspec.Struct, kw_only=True):
    """Information about one model."""

    name: str
    """A preset."""
    parameters: int
    """Number of trainable parameters; shared parameters count once."""
    compared: int
    """Number of sentences whose outputs were compared."""
    baseline: str
    """The system that outputs are compared with."""
    systems: list[SystemFacts]
    """One per system."""


class Report(msgspec.Struct, kw_only=True):
    """A whole run of the benchmark."""

    machine: str
    """Processor and system."""
    versions: dict[str, str]
    """Versions of Python and the libraries of this process."""
    systems: list[str]
    """Requested groups of systems."""
    vocab_size: int
    """Vocabulary size of the models with random weights."""
    commands: list[str] = []
    """Commands that produced the report, oldest first."""
    models: list[Model] = []
    """Models measured so far."""
    cells: list[Cell] = []
    """Cells measured so far."""

    def cell(self, setting: Setting) -> Cell | None:
        """Return the cell of a setting, if it was measured."""
        return next((cell for cell in self.cells if cell.setting == setting), None)

    def model(self, name: str) -> Model | None:
        """Return the model with this name, if it was measured."""
        return next((model for model in self.models if model.name == name), None)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def resumed(path: Path, fresh: Report) -> Report:
    """Load a report, so that it can be resumed.

    Raises:
        ConfigError: the report cannot be read, or was made on another machine, with other versions or for other
            systems.
    """
    try:
        old = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"`{path}` cannot be resumed: {error}. Leave out --resume to start over.") from None
    for name in ("machine", "versions", "systems", "vocab_size"):
        if getattr(old, name) != getattr(fresh, name):
            raise ConfigError(
                f"`{path}` cannot be resumed: its `{name}` is {getattr(old, name)}, but now it is "
                f"{getattr(fresh, name)}. Leave out --resume to start over."
            )
    old.commands += fresh.commands
    return old
