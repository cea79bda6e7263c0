"""Time of one decoder step of a bundle at several target positions. Does it grow with the target?

Usage: ``python -m edgeformer_bench.studies.step_time BUNDLE... --position 5 --position 200``
"""

from __future__ import annotations

import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from edgeformer.errors import ConfigError
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import atomic_text, console, json_text, table
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION, OnnxSession
from edgeformer_runtime.errors import EdgeformerError, ModelError
from edgeformer_runtime.selfcheck.machine import machine_summary

POSITIONS = (5, 100, 200)
WARMUP = 10
"""Rounds before those that are measured."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Time of one decoder step at one target position."""

    position: int
    """Tokens decoded before this step."""
    median_ms: float
    """Median of all rounds, in milliseconds."""
    min_ms: float
    """Shortest, in milliseconds."""
    ratio: float
    """Median over the median at the first of the positions asked for."""


def step_times(
    bundle: Path,
    positions: Sequence[int] = POSITIONS,
    *,
    source_length: int = 20,
    batch: int = 1,
    threads: int = 1,
    repeat: int = 200,
    seed: int = 1,
) -> list[StepTime]:
    """Step random tokens up to each position, then time the step from there, again and again from the same state.

    Each round takes one step at each position, so that a slow moment of the machine meets all of them. What is timed is
    the session's ``step``, logits copied to the host included; search and tokenizers are not in it.

    Args:
        bundle: its folder.
        positions: target positions, 0 for the first step; the first of them is the base of the ratios.
        source_length: tokens of each random source, end token included.
        batch: rows, each with a source of its own.
        threads: CPU threads of one operator; 0 takes all this process may use.
        repeat: measured rounds.
        seed: of the random tokens.

    Raises:
        ConfigError: no position or no round is asked for, or one is beyond what the model takes.
        ModelError: two steps from one state differ, so that a state cannot be used twice.
        BundleError: the bundle cannot be opened.
    """
    opened = open_bundle(bundle)
    manifest, name = opened.manifest, opened.path
    if not positions or min(positions) < 0 or min(source_length, batch, repeat) < 1:
        raise ConfigError("Give at least one position from 0, and at least one source token, row and round.")
    if max(positions) >= manifest.max_target_length:
        raise ConfigError(
            f"Bundle `{name}` has no position {max(positions)}: its `max_target_length` is "
            f"{manifest.max_target_length}, so the last one is {manifest.max_target_length - 1}. "
            "Ask for less, or train with a larger `model.max_target_length`."
        )
    if source_length > manifest.max_source_length:
        raise ConfigError(
            f"Bundle `{name}` takes sources of at most {manifest.max_source_length} tokens, not {source_length}."
        )
    session = OnnxSession(opened, threads=threads)
    random = np.random.default_rng(seed)
    source = random.integers(manifest.source_vocab_size, size=(batch, source_length))
    source[:, -1] = manifest.special.eos
    tokens = random.integers(manifest.target_vocab_size, size=(max(positions) + 1, batch))

    state = session.start(source, np.full(batch, source_length))
    states, expected = {}, {}
    for position, token in enumerate(tokens):
        before = state
        logits, state = session.step(token, position, before)
        if position in positions:
            states[position], expected[position] = before, logits
    seconds: dict[int, list[float]] = {position: [] for position in positions}
    for number in range(WARMUP + repeat):
        for position, values in seconds.items():
            begin = time.perf_counter()
            logits, _ = session.step(tokens[position], position, states[position])
            elapsed = time.perf_counter() - begin
            if not np.array_equal(logits, expected[position], equal_nan=True):
                raise ModelError(f"Bundle `{name}`: two steps from the same state at position {position} differ.")
            if number >= WARMUP:
                values.append(elapsed)
    base = statistics.median(seconds[positions[0]])
    return [
        StepTime(
            position=position,
            median_ms=1000 * statistics.median(values),
            min_ms=1000 * min(values),
            ratio=statistics.median(values) / base,
        )
        for position, values in seconds.items()
    ]


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--source-length", default=20, show_default=True, type=click.IntRange(1), help="Tokens of the source.")
@click.option(
    "--position",
    "positions",
    multiple=True,
    type=click.IntRange(0),
    default=POSITIONS,
    show_default=True,
    help="Target position; give it again for more. Ratios are to the first.",
)
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Rows of a step.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(0), help="CPU threads; 0 takes all.")
@click.option("--repeat", default=200, show_default=True, type=click.IntRange(1), help="Measured rounds.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write the figures to this file.")
def main(
    bundles: tuple[Path, ...],
    source_length: int,
    positions: tuple[int, ...],
    batch: int,
    threads: int,
    repeat: int,
    json_file: Path | None,
) -> None:
    """Time one decoder step of BUNDLES at each --position, with random tokens."""
    settings = {"source_length": source_length, "batch": batch, "threads": threads, "repeat": repeat}
    rows = table(f"One decoder step, {batch} row(s), {threads or 'all'} thread(s)", *_COLUMNS)
    rows.columns[0].overflow = "fold"  # paths of bundles often differ at the end only
    figures = {}
    try:
        for bundle in bundles:
            figures[str(bundle)] = times = step_times(bundle, positions, **settings)
            for at in times:
                rows.add_row(
                    str(bundle), f"{at.position}", f"{at.median_ms:.3f}", f"{at.min_ms:.3f}", f"{at.ratio:.2f}"
                )
        if json_file is not None:
            versions = {"machine": machine_summary(), "onnxruntime": ENGINE_VERSION, "command": shlex.join(sys.argv)}
            with atomic_text(json_file) as stream:
                stream.write(json_text({**versions, **settings, "bundles": figures}) + "\n")
    except EdgeformerError as error:
        raise click.ClickException(str(error)) from None
    console().print(rows)
    console().print(machine_summary())


_COLUMNS = ("", "position", "median ms", "min ms", "ratio")

if __name__ == "__main__":
    main()
