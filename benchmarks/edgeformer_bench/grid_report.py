"""What ``python -m edgeformer_bench.grid`` finds out, as a file that it can go on from, and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench.bandwidth import Bandwidth, bandwidth_at
from edgeformer_bench.rounds import Score, Timing
from edgeformer_bench.start import Start
from edgeformer_bench.systems import REFERENCE
from edgeformer_runtime.files import write_atomically


class Setting(msgspec.Struct, kw_only=True, frozen=True):
    """One cell of the grid, or one way to give a text; names no system."""

    model: str
    """A preset with random weights, or the name of a run."""
    threads: int
    """CPU threads of one operator."""
    beam_size: int
    """Hypotheses kept; 1 is greedy."""
    batch: int
    """Sentences of a call."""
    source_length: int = 0
    """Tokens of each source, end token included; 0 for text."""
    target_length: int = 0
    """Tokens that are decoded for each sentence; 0 for text."""
    order: str = ""
    """``as given`` or ``sorted by length``, for text."""

    @property
    def workload(self) -> str:
        """For people, without model and threads."""
        search = "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"
        if self.order:
            return f"{self.batch:,} sentences, {self.order}, {search}"
        return f"batch {self.batch}, {search}, {self.source_length} → {self.target_length} tokens"


class Result(msgspec.Struct, kw_only=True):
    """One system in one cell."""

    system: str
    """Its name."""
    timing: Timing | None = None
    """Times of a call; none if it failed."""
    first_token_ms: float | None = None
    """Median time of a call that decodes one token: the encoder and one step."""
    variant: str = ""
    """The settings that were fastest, where several were tried."""
    error: str = ""
    """Why it was not measured."""

    def step_ms(self, target_length: int) -> float | None:
        """Mean time of a step after the first, from a call of so many tokens."""
        if self.timing is None or self.first_token_ms is None or target_length < 2:
            return None
        return (self.timing.median_ms - self.first_token_ms) / (target_length - 1)


class Cell(msgspec.Struct, kw_only=True):
    """All systems under one setting."""

    setting: Setting
    """What was measured."""
    results: list[Result]
    """By system."""

    @classmethod
    def of(cls, setting: Setting, scores: dict[str, Score]) -> Cell:
        """From a contest."""
        results = []
        for name, score in scores.items():
            result = Result(system=name, variant=score.variant, error=score.error)
            if not score.error:
                result.timing = Timing.of(score.seconds)
                if score.first_seconds:
                    result.first_token_ms = Timing.of(score.first_seconds).median_ms
            results.append(result)
        return cls(setting=setting, results=results)

    def speed(self, result: Result) -> float | None:
        """How many times as fast a system is as :data:`~edgeformer_bench.systems.REFERENCE`."""
        base = next((one.timing for one in self.results if one.system == REFERENCE), None)
        return None if base is None or result.timing is None else base.median_ms / result.timing.median_ms

    def per_second(self, result: Result) -> float | None:
        """Target tokens, or sentences of text, in a second."""
        if result.timing is None:
            return None
        return self.setting.batch * (self.setting.target_length or 1) / result.timing.median_ms * 1000


class SystemFacts(msgspec.Struct, kw_only=True):
    """What is known of one system with one model beside its times."""

    system: str
    """Its name."""
    version: str = ""
    """The engine and its version."""
    start: Start | None = None
    """A fresh process up to its first translation."""
    step_bytes: int = 0
    """Bytes of weights that a decoder step reads."""
    identical: dict[str, int] = {}
    """Sentences with the same output as the reference bundle's, by search."""
    error: str = ""
    """Why it takes no part."""


class Model(msgspec.Struct, kw_only=True):
    """What is known of one model."""

    name: str
    """A preset, or the name of a run."""
    parameters: int
    """Trained numbers, shared ones counted once."""
    compared: int
    """Sentences whose outputs were compared."""
    baseline: str
    """The system that outputs are compared with."""
    systems: list[SystemFacts]
    """By system."""


class Report(msgspec.Struct, kw_only=True):
    """A whole run of the benchmark."""

    machine: str
    """Processor and system."""
    versions: dict[str, str]
    """Python and libraries of this process."""
    systems: list[str]
    """What was asked for: groups of systems."""
    vocab_size: int
    """Of the models with random weights."""
    commands: list[str] = []
    """Commands that made it, oldest first."""
    bandwidth: list[Bandwidth] = []
    """How fast this machine reads memory."""
    models: list[Model] = []
    """Models measured so far."""
    cells: list[Cell] = []
    """Cells measured so far."""

    def cell(self, setting: Setting) -> Cell | None:
        """The cell of a setting, if it is there."""
        return next((cell for cell in self.cells if cell.setting == setting), None)

    def model(self, name: str) -> Model | None:
        """The model of a name, if it is there."""
        return next((model for model in self.models if model.name == name), None)

    def write(self, path: Path) -> None:
        """Write all of it as JSON."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def resumed(path: Path, fresh: Report) -> Report:
    """The report in a file, to go on with.

    Raises:
        ConfigError: it cannot be read, or was made on another machine, with other versions or for other systems.
    """
    try:
        old = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"`{path}` cannot be resumed: {error}. Leave out --resume to begin anew.") from None
    for name in ("machine", "versions", "systems", "vocab_size"):
        if getattr(old, name) != getattr(fresh, name):
            raise ConfigError(
                f"`{path}` cannot be resumed: its `{name}` is {getattr(old, name)}, but now it is "
                f"{getattr(fresh, name)}. Leave out --resume to begin anew."
            )
    old.commands += fresh.commands
    return old


@dataclass(frozen=True)
class Rows:
    """A table, for the terminal and for the page."""

    title: str
    """What it shows."""
    columns: Sequence[str]
    """Heads; the first column holds names."""
    rows: Sequence[Sequence[str]]
    """Cells as text."""


def tables(report: Report) -> Iterator[Rows]:
    """All tables of a report."""
    for cell in report.cells:
        yield _cell_table(cell)
    for model in report.models:
        yield _model_table(model)
    for model in report.models:
        memory = _memory_table(report, model)
        if memory.rows:
            yield memory
    engines = {facts.system: facts.version for model in report.models for facts in model.systems if facts.version}
    if engines:
        yield Rows("Engines", ("", ""), list(engines.items()))
    if report.bandwidth:
        rows = [
            (f"{one.threads}", f"{one.bytes / 1e6:.0f}", f"{one.gigabytes_per_second:.1f}", one.reduction)
            for one in report.bandwidth
        ]
        yield Rows("Reading memory", ("threads", "MB", "GB/s", "fastest reduction"), rows)


def problems(report: Report) -> list[str]:
    """What could not be measured, or differs from what it should be; one line each."""
    lines = []
    for model in report.models:
        for facts in model.systems:
            if facts.error:
                lines.append(f"{model.name}: {facts.system} was not measured: {facts.error}")
            elif facts.system.endswith(("float32", "torch eager", "torch.compile")):
                lines += [
                    f"{model.name}: {facts.system}, {search}, differs from {model.baseline} in "
                    f"{model.compared - same} of {model.compared} sentences."
                    for search, same in facts.identical.items()
                    if same < model.compared
                ]
    said = {(model.name, facts.system, facts.error) for model in report.models for facts in model.systems}
    lines += [
        f"{cell.setting.model}, {cell.setting.workload}: {result.system} failed: {result.error}"
        for cell in report.cells
        for result in cell.results
        if result.error and (cell.setting.model, result.system, result.error) not in said
    ]
    return lines


def _cell_table(cell: Cell) -> Rows:
    setting = cell.setting
    unit = "sentences/s" if setting.order else "tokens/s"
    rows = []
    for result in cell.results:
        timing = result.timing
        if timing is None:
            rows.append((result.system, *["–"] * 6))
            continue
        rows.append(
            (
                result.system,
                _ms(timing.median_ms),
                f"{_ms(timing.p25_ms)}–{_ms(timing.p75_ms)}",
                "–" if result.first_token_ms is None else _ms(result.first_token_ms),
                _number(result.step_ms(setting.target_length), 3),
                f"{cell.per_second(result):,.0f}",
                _number(cell.speed(result), 2),
            )
        )
    title = f"{setting.model}: {setting.workload}, {setting.threads} thread(s)"
    return Rows(title, ("", "ms", "p25–p75", "first ms", "step ms", unit, "speed"), rows)


def _model_table(model: Model) -> Rows:
    searches = list(dict.fromkeys(search for facts in model.systems for search in facts.identical))
    rows = []
    for facts in model.systems:
        start = facts.start
        rows.append(
            (
                facts.system,
                "–" if start is None else f"{start.bytes / 1e6:.1f}",
                "–" if start is None else f"{start.seconds:.2f}",
                "–" if start is None else _number(start.peak_mb, 0),
                *(f"{facts.identical[name]} of {model.compared}" if facts.identical else "–" for name in searches),
            )
        )
    title = (
        f"{model.name}, {model.parameters / 1e6:.1f} M parameters: files; a fresh process up to its first translation; "
        f"outputs that are the same as those of {model.baseline}"
    )
    return Rows(title, ("", "MB on disk", "seconds", "peak MB", *searches), rows)


def _memory_table(report: Report, model: Model) -> Rows:
    """Weights read in a step of one row, against what the machine can read."""
    rows = []
    one_row = [
        cell
        for cell in report.cells
        if cell.setting.model == model.name and cell.setting.batch == cell.setting.beam_size == 1
    ]
    measured = {one.threads for one in report.bandwidth}
    for cell in one_row:
        for result in cell.results:
            setting = cell.setting
            step = result.step_ms(setting.target_length)
            size = next((facts.step_bytes for facts in model.systems if facts.system == result.system), 0)
            if step is None or not size or step <= 0 or setting.threads not in measured:
                continue
            reached = size / step / 1e6
            limit = bandwidth_at(report.bandwidth, setting.threads, size).gigabytes_per_second
            rows.append(
                (
                    result.system,
                    f"{setting.source_length} → {setting.target_length}",
                    f"{setting.threads}",
                    f"{size / 1e6:.1f}",
                    f"{step:.3f}",
                    f"{reached:.1f}",
                    f"{limit:.1f}",
                    f"{reached / limit:.0%}",
                )
            )
    columns = ("", "tokens", "threads", "MB a step", "step ms", "GB/s", "at most", "share")
    return Rows(
        f"{model.name}: weights read in a step of one row, and how fast the machine reads so many bytes", columns, rows
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _ms(value: float) -> str:
    """Milliseconds with three digits or more."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"
