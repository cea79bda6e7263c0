"""Every model family on the embedded corpus: train, export, score, time a decoder step. Run it with ``make families``.

Every step is a command that a user could type; it is printed before it runs. A finished training is not repeated, and
an interrupted one is resumed; bundles are exported again each time, so that no bundle is older than its model or the
exporter. Exits with status 1 and a line for each family that fails or misses a limit.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from edgeformer.markdown import markdown_table
from edgeformer_bench.commands import Command, command_line, edgeformer, evaluate
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import atomic_text, console, json_text
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION, OnnxSession
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.selfcheck.machine import machine_summary


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the table: what to train, and the results required of it."""

    label: str
    """Label in the table."""
    recipe: str
    """The recipe."""
    overrides: tuple[str, ...] = ()
    """Overrides passed with ``--set``."""
    exact: float = 0.99
    """Minimum fraction of exact matches in torch."""
    growth: float = 1.1
    """Maximum ratio of the time of a decoder step at the last position to that at the first."""


ENTRIES = {
    "transformer": Entry(label="transformer", recipe="dates-en-fr", growth=1.3),
    "transformer-free-widths": Entry(
        label="transformer, free head widths, no biases",
        recipe="dates-en-fr",
        overrides=(
            "model.d_k=24",
            "model.d_v=40",
            "model.attention_bias=false",
            "model.attention_output_bias=false",
        ),
        growth=1.3,
    ),
    "transformer-shared-heads": Entry(
        label="transformer, shared head projection, learned positions",
        recipe="dates-en-fr",
        overrides=(
            "model.positions=learned",
            "model.share_head_projection=true",
            "model.attention_bias=false",
            "model.attention_scale=d_model",
            "model.dropout_after_norm=true",
            "model.norm=post",
            "train.max_steps=4200",
            "train.cooldown_steps=3400",
        ),
        growth=1.3,
    ),
    "ssru": Entry(label="ssru", recipe="dates-en-fr-ssru"),
    "lstm": Entry(label="lstm", recipe="dates-en-fr-lstm", exact=0.9),
    "lstm-attention-mlp": Entry(label="lstm_attention, mlp", recipe="dates-en-fr-lstm-attention"),
    "lstm-attention-dot": Entry(
        label="lstm_attention, dot", recipe="dates-en-fr-lstm-attention", overrides=("model.attention=dot",)
    ),
}
LENGTHS = ("model.max_source_length=256", "model.max_target_length=256")
"""Overrides for all entries: room for the last position, which no text of the corpus reaches."""
INT8_LOSS = 0.005
"""Maximum drop in the fraction of exact matches from torch to int8."""
POSITIONS = (5, 100, 200)
"""Target positions whose decoder steps are timed."""
SOURCE_LENGTH = 20
REPEAT = 500
"""Rounds of :func:`step_ms`, each of which decodes up to the last position."""
PRECISIONS = ("fp32", "int8")
COLUMNS = (
    "family",
    "parameters",
    "exact match: torch / fp32 / int8",
    *(f"{precision} step, ms: at {' / '.join(map(str, POSITIONS))}" for precision in PRECISIONS),
    f"{POSITIONS[-1]} to {POSITIONS[0]}: fp32 / int8",
    "MB: fp32 / int8",
)


@dataclass
class Result:
    """Results for one family; later fields stay empty if a command fails."""

    entry: Entry
    """The row of the table."""
    training: dict[str, Any] = field(default_factory=dict)
    """Selected statistics of the run, and library versions."""
    exact_match: dict[str, float] = field(default_factory=dict)
    """Fraction of exact matches of ``torch``, ``fp32`` and ``int8`` with greedy search."""
    step_ms: dict[str, dict[int, float]] = field(default_factory=dict)
    """Decoder step times by precision and position."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Size of the bundle in bytes by precision."""
    problems: list[str] = field(default_factory=list)
    """Failures, and each limit that was missed."""

    @property
    def cells(self) -> list[str]:
        """Format the row as text."""

        def joined(values: list[str]) -> str:
            return " / ".join(values) or "–"

        return [
            self.entry.label,
            f"{self.training['parameters']:,}" if self.training else "–",
            joined([f"{value:.1%}" for value in self.exact_match.values()]),
            *(joined([f"{value:.3f}" for value in self.step_ms.get(name, {}).values()]) for name in PRECISIONS),
            joined([f"{_growth(times):.2f}" for times in self.step_ms.values()]),
            joined([f"{size / 1e6:.2f}" for size in self.bytes.values()]),
        ]

    def check(self) -> None:
        """Note each limit that was missed."""
        entry, torch, int8 = self.entry, self.exact_match["torch"], self.exact_match["int8"]
        if torch < entry.exact:
            self.problems.append(f"{torch:.1%} exact matches in torch, fewer than {entry.exact:.0%}")
        if torch - int8 > INT8_LOSS + 1e-9:
            self.problems.append(
                f"int8 has {int8:.1%} exact matches and torch {torch:.1%}, over {100 * INT8_LOSS:.1f} points more"
            )
        for precision, times in self.step_ms.items():
            if _growth(times) > entry.growth:
                self.problems.append(
                    f"a step of {precision} takes {_growth(times):.2f} times as long at {POSITIONS[-1]} as at "
                    f"{POSITIONS[0]}, more than {entry.growth:.2f}"
                )


def measure(name: str, out: Path) -> Result:
    """Train, export and score one family; decoder steps are timed later."""
    entry, run = ENTRIES[name], out / name / "run"
    result = Result(entry)
    overrides = [word for change in (*LENGTHS, *entry.overrides) for word in ("--set", change)]
    try:
        resume = ("--resume",) if run.exists() else ()
        edgeformer("train", entry.recipe, "--out", run, *overrides, *resume)
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        result.training = {key: info[key] for key in ("parameters", "steps", "minutes", "versions")}
        models = {"torch": run, **{precision: out / name / precision for precision in PRECISIONS}}
        for precision in PRECISIONS:
            edgeformer("export", run, "--out", models[precision], "--precision", precision, "--overwrite")
            result.bytes[precision] = open_bundle(models[precision]).nbytes
        for system, model in models.items():
            result.exact_match[system] = evaluate(model, out / "data")["scores"]["exact_match"]
    except EdgeformerError as error:
        result.problems.append(str(error))
    return result


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/families"), show_default=True)
@click.option("--family", "names", multiple=True, type=click.Choice(list(ENTRIES)), help="Only these; default: all.")
def main(out: Path, names: tuple[str, ...]) -> None:
    """Train, export and measure every family into the folder OUT, and write OUT/families.md and OUT/families.json."""
    edgeformer("data", "prepare", "dates-en-fr", "--out", out / "data", "--overwrite")
    results = {name: measure(name, out) for name in names or ENTRIES}

    for name, result in results.items():  # consecutively, under the same conditions for all families
        if result.problems:
            continue
        try:
            for precision in PRECISIONS:
                result.step_ms[precision] = step_ms(out / name / precision)
            result.check()
        except EdgeformerError as error:
            result.problems.append(str(error))

    lines = markdown_table(COLUMNS, [result.cells for result in results.values()])
    with atomic_text(out / "families.md") as stream:
        stream.writelines(f"{line}\n" for line in lines)
    figures = {
        "machine": machine_summary(),
        "versions": {"onnxruntime": ENGINE_VERSION},
        "command": command_line(),
        "positions": POSITIONS,
        "families": results,
    }
    with atomic_text(out / "families.json") as stream:
        stream.write(json_text(figures) + "\n")
    console().print("\nHeld-out dates, times and numbers, greedy; one row and one thread\n")
    console().print("\n".join([*lines, "", machine_summary()]))
    for name, result in results.items():
        for problem in result.problems:
            console().print(f"{name}: {problem}", style="red")
    if any(result.problems for result in results.values()):
        raise SystemExit(1)


def step_ms(bundle: Path) -> dict[int, float]:
    """Measure the median time of a decoder step of one row at each of the :data:`POSITIONS`.

    Every round decodes the same random target from the start, so that a step begins with as many tokens as its
    position, and all positions have the same rounds.
    """
    opened = open_bundle(bundle)
    manifest, random = opened.manifest, np.random.default_rng(1)
    source = random.integers(manifest.source_vocab_size, size=(1, SOURCE_LENGTH))
    source[:, -1] = manifest.special.eos
    target = random.integers(manifest.target_vocab_size, size=(POSITIONS[-1] + 1, 1))
    session = OnnxSession(opened, threads=1)
    seconds: dict[int, list[float]] = {position: [] for position in POSITIONS}
    for _ in range(REPEAT):
        state = session.start(source, np.array([SOURCE_LENGTH]))
        for position, token in enumerate(target):
            begin = time.perf_counter()
            state.step(token)
            if position in seconds:
                seconds[position].append(time.perf_counter() - begin)
    return {position: 1000 * statistics.median(times) for position, times in seconds.items()}


def _growth(times: dict[int, float]) -> float:
    """Ratio of the time of a step at the last position to that at the first."""
    return times[POSITIONS[-1]] / times[POSITIONS[0]]


if __name__ == "__main__":
    main()
