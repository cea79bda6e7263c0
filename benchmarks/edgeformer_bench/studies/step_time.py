"""Times a bundle's decoder step at several target positions, to see whether it grows with the target length.

Usage: ``python -m edgeformer_bench.studies.step_time BUNDLE... --position 5 --position 200``
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from edgeformer.errors import ConfigError
from edgeformer_bench.commands import Command
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.decoding.forced_steps import columns
from edgeformer_runtime.decoding.session import FloatArray, IntArray, StepSession
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.selfcheck.machine import machine_summary

POSITIONS = (5, 100, 200)
WARMUP = 3
"""Number of warm-up rounds before the measured ones."""


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Time of one decoder step at one target position."""

    position: int
    """Number of tokens decoded before this step."""
    median_ms: float
    """Median of all rounds, in milliseconds."""
    min_ms: float
    """Shortest time, in milliseconds."""
    ratio: float
    """Median divided by the median at the first requested position."""


def step_times(
    bundle: Path,
    positions: Sequence[int] = POSITIONS,
    *,
    source_length: int = 20,
    batch: int = 1,
    threads: int = 1,
    repeat: int = 200,
) -> list[StepTime]:
    """Time the steps of a bundle that is fed random tokens; see :func:`time_steps`.

    Args:
        bundle: folder of the bundle.
        positions: target positions, 0 for the first step; ratios are relative to the first position given.
        source_length: tokens of each random source, end token included.
        batch: number of rows, each with its own source.
        threads: CPU threads per operator; 0 for as many as a model of its size has use for.
        repeat: measured rounds.

    Raises:
        ConfigError: no positions or no rounds are requested, or a position exceeds the model's limits.
        ModelError: two rounds give different logits.
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
    random = np.random.default_rng(1)
    source = random.integers(manifest.source_vocab_size, size=(batch, source_length))
    source[:, -1] = manifest.special.eos
    tokens = random.integers(manifest.target_vocab_size, size=(max(positions) + 1, batch))

    try:
        seconds = time_steps(session, source, tokens.T, positions, repeat)
    except ModelError as error:
        raise ModelError(f"Bundle `{name}`: {error}") from None
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


def time_steps(
    session: StepSession, source: IntArray, target: IntArray, positions: Sequence[int], repeat: int
) -> dict[int, list[float]]:
    """Repeatedly decode the same target from the start, and time the steps at some positions along the way.

    Every timed step thus starts from a state with exactly as many tokens as its position, whether its caches grow or
    are written in place, and every round covers all positions, so that a temporary slowdown of the machine affects all
    of them. Times are those of the state's ``step``, including the copy of logits to the host but not search or
    tokenization.

    Args:
        session: the model.
        source: sources without padding, ``(N, S)``, int64.
        target: tokens to feed, ``(N, T)``, int64.
        positions: positions to time, each less than T.
        repeat: number of measured rounds, after :data:`WARMUP` warm-up rounds.

    Returns:
        Times of all measured rounds by position, in seconds.

    Raises:
        ModelError: a step gives different logits than in the first round.
    """
    seconds: dict[int, list[float]] = {position: [] for position in positions}
    expected: dict[int, FloatArray] = {}
    length = np.full(len(source), source.shape[1])
    for number in range(WARMUP + repeat):
        state = session.start(source, length)
        for position, token in enumerate(columns(target[:, : max(positions) + 1])):
            begin = time.perf_counter()
            logits = state.step(token)
            elapsed = time.perf_counter() - begin
            if position not in seconds:
                continue
            # A copy, since the next step overwrites the logits
            if not np.array_equal(logits, expected.setdefault(position, logits.copy()), equal_nan=True):
                raise ModelError(f"two rounds give different logits at position {position}.")
            if number >= WARMUP:
                seconds[position].append(elapsed)
    return seconds


@click.command(cls=Command)
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--source-length", default=20, show_default=True, type=click.IntRange(1), help="Tokens of the source.")
@click.option(
    "--position",
    "positions",
    multiple=True,
    type=click.IntRange(0),
    default=POSITIONS,
    show_default=True,
    help="Target position; may be repeated. Ratios are to the first.",
)
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Rows of a step.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(0), help="CPU threads; 0 uses every CPU.")
@click.option("--repeat", default=200, show_default=True, type=click.IntRange(1), help="Measured rounds.")
def main(bundles: tuple[Path, ...], positions: tuple[int, ...], **settings: int) -> None:
    """Time one decoder step of BUNDLES at each --position, with random tokens."""
    columns = ("", "position", "median ms", "min ms", "ratio")
    title = f"One decoder step; rows: {settings['batch']}, threads: {settings['threads'] or 'all'}"
    rows = table(title, *columns)
    rows.columns[0].overflow = "fold"  # bundle paths often differ only at the end
    for bundle in bundles:
        for at in step_times(bundle, positions, **settings):
            rows.add_row(str(bundle), f"{at.position}", f"{at.median_ms:.3f}", f"{at.min_ms:.3f}", f"{at.ratio:.2f}")
    console().print(rows)
    console().print(machine_summary())


if __name__ == "__main__":
    main()
