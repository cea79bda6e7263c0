"""The command behind ``make bench``: ``python -m edgeformer_bench.grid``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from edgeformer_bench.commands import Command
from edgeformer_bench.grid.measure import OURS, PRESETS, WORKLOADS, GridOptions, measure
from edgeformer_bench.grid.models import PRECISIONS
from edgeformer_bench.grid.report import page
from edgeformer_bench.options import peer_pythons
from edgeformer_bench.peers.base import PEERS
from edgeformer_runtime.cli.output import console, counting, json_text, plural
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.files import write_atomically

LENGTHS = (10, 20, 60)
"""Source lengths of a full grid."""
THREADS = (1, 2)
"""Threads of a full grid."""
SLOW = "torch-compile"
"""Peer that compiles for minutes for every new number of rows; measured with ``--full`` or on request."""


def _several(name: str, field: str, kind: click.ParamType[Any], text: str) -> Callable[[Any], Any]:
    """Create an option that may be repeated."""
    return click.option(name, field, multiple=True, type=kind, help=f"{text}; may be repeated.")


@click.command(cls=Command)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/bench"),
    show_default=True,
    help="Folder for the results.",
)
@_several("--preset", "presets", click.Choice(PRESETS), "Size of the model. Default: edge and base")
@_several("--workload", "workloads", click.Choice(list(WORKLOADS)), "Batch size x beam size. Default: all")
@_several("--length", "lengths", click.IntRange(2, 64), "Source tokens. Default: 20")
@_several("--threads", "threads", click.IntRange(1), "CPU threads per operator. Default: 1")
@_several("--system", "systems", click.Choice((OURS, *PEERS)), f"System to measure. Default: all except {SLOW}")
@_several("--precision", "precisions", click.Choice(PRECISIONS), "Precision of our bundles. Default: all")
@click.option(
    "--full", is_flag=True, help="All presets and systems, lengths 10, 20 and 60, 1 and 2 threads. Takes hours."
)
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Measured rounds per cell.")
@click.option(
    "--seconds", default=40.0, show_default=True, help="Time limit per cell; at least three rounds are measured."
)
@click.option(
    "--starts", default=3, show_default=True, type=click.IntRange(1), help="Fresh processes per system, for start time."
)
@click.option(
    "--vocab-size",
    default=32_000,
    show_default=True,
    type=click.IntRange(1000),
    help="Vocabulary size of the presets.",
)
@peer_pythons
def main(out: Path, full: bool, **choices: Any) -> None:
    """Compare edgeformer with its peers: the same weights, tokens and threads, in one run.

    Every system runs in a process of its own, and all do the same work in alternating rounds; times are medians.
    Presets have random weights, and every output has the given length; for a trained model, see `edgeformer bench`.

    Writes OUT/bench.json, saved after each cell, and OUT/bench.md, which it prints.
    """
    options = _options(full, **choices)
    with counting("cells") as progress:
        for done, report in enumerate(measure(options)):
            write_atomically(out / "bench.json", json_text(report).encode())
            progress(done, len(options.settings))
    text = "\n".join(page(report))
    write_atomically(out / "bench.md", text.encode())
    console().print(text)


def _options(full: bool, **choices: Any) -> GridOptions:
    """Fill in the defaults of options, which depend on ``--full``."""
    threads = choices["threads"] or (THREADS if full else THREADS[:1])
    usable = tuple(count for count in threads if count <= available_cpus())
    if not usable:
        raise click.UsageError(f"This process has {plural(available_cpus(), 'CPU')}; --threads must not exceed that.")
    defaults = {
        "presets": PRESETS if full else PRESETS[1:],
        "workloads": tuple(WORKLOADS),
        "lengths": LENGTHS if full else LENGTHS[1:2],
        "systems": tuple(name for name in (OURS, *PEERS) if full or name != SLOW),
        "precisions": PRECISIONS,
    }
    choices |= {name: choices[name] or default for name, default in defaults.items()}
    return GridOptions(**{**choices, "threads": usable})


if __name__ == "__main__":
    main()
