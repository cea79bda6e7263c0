"""Loads a server, and looks at whether it keeps its promises: ``python -m edgeformer_bench.load BUNDLE``."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import click
import msgspec

from edgeformer_bench.commands import Command
from edgeformer_bench.load.ending import ended
from edgeformer_bench.load.phases import Make, Phase, overloaded, steady
from edgeformer_bench.load.replacement import answers, replace, replaced, told_apart
from edgeformer_bench.load.report import Result, conclude, json_option
from edgeformer_bench.load.serving import (
    Phrases,
    Serving,
    own_temporary_folder,
    request_bytes,
    serving,
    translation_fields,
    upload,
)
from edgeformer_runtime.cli.output import stages

SIZES = (1, 1, 1, 8, 8, 100)
"""Texts of the requests while a bundle is replaced; the largest ones need several batches."""
EXPECTED = 60
"""Number of these requests."""


class Program:
    """What the phases have in common: the server that they start, and the requests, of which a share are documents."""

    def __init__(self, bundle: Path, clients: int, workers: int, documents: float, seed: int) -> None:
        self._bundle, self._clients, self._workers, self._documents = bundle, clients, workers, documents
        self._phrases, self._random = Phrases(seed), Random(seed)

    @contextmanager
    def _serving(self, bundle: Path, *arguments: str) -> Iterator[tuple[Serving, Make]]:
        """Start the server, and make requests for it."""
        with serving(bundle, "--threads", "1", "--workers", str(self._workers), *arguments) as server:
            fields = translation_fields(server)

            def make(**more: float) -> bytes:
                if self._random.random() < self._documents:
                    text = self._phrases.next()
                    return upload(f"<p>{text}</p><p>{text}</p>".encode(), "a.html", fields)
                return request_bytes([self._phrases.next()], {**fields, **more})

            yield server, make

    def waiting(self, seconds: float, times: float, deadline: float) -> Iterator[tuple[str, Phase]]:
        """Clients that wait for their answers; then more of them than the server can answer, unless ``times`` is 0."""
        with self._serving(self._bundle) as (server, make):
            usual = asyncio.run(steady(server, make, self._clients, seconds))
            yield "waiting", usual
            if times:
                hurried = partial(make, timeout=deadline)
                yield (
                    "overloaded",
                    asyncio.run(overloaded(server, hurried, usual, times, seconds, deadline, self._random)),
                )

    def replacing(self, other: Path, times: int) -> Iterator[tuple[str, Phase]]:
        """A bundle that is replaced by another and back."""
        texts = [[self._phrases.next() for _ in range(self._random.choice(SIZES))] for _ in range(EXPECTED)]
        with tempfile.TemporaryDirectory() as folder:
            path, alone, requests = Path(folder) / "bundle", list[list[list[str]]](), list[bytes]()
            for each in (other, self._bundle):
                replace(path, each)
                with self._serving(path) as (server, _):
                    fields = translation_fields(server)
                    requests = [request_bytes(part, fields) for part in texts]
                    alone.append(asyncio.run(answers(server, requests)))
            expected, bundles = told_apart(requests, alone[1], alone[0]), (self._bundle, other)
            with self._serving(path) as (server, _):
                yield (
                    "replaced",
                    asyncio.run(replaced(server, path, bundles, expected, self._clients, times, self._random)),
                )

    def ending(self, rounds: int) -> Iterator[tuple[str, Phase]]:
        """Servers that are told to end at random moments."""
        for number in range(1, rounds + 1):
            with self._serving(self._bundle, "--shutdown-timeout", "30") as (server, make):
                delay = self._random.uniform(0.2, 3.0)
                yield f"ended {number}", asyncio.run(ended(server, make, self._clients, delay))

    def killing(self, rounds: int) -> Iterator[tuple[str, Phase]]:
        """Servers that are killed at random moments; the next one must remove the files that each left."""
        with own_temporary_folder() as folder:
            for number in range(1, rounds + 1):
                with self._serving(self._bundle) as (server, make):
                    delay = self._random.uniform(0.2, 3.0)
                    phase = asyncio.run(ended(server, make, self._clients, delay, signal.SIGKILL))
                left = set(folder.iterdir())
                with self._serving(self._bundle):
                    remaining = left & set(folder.iterdir())
                problems = [f"{len(remaining)} of {len(left)} files and folders remain"] if remaining else []
                if not left:
                    problems.append("nothing was left that could remain")
                yield f"killed {number}", msgspec.structs.replace(phase, problems=[*phase.problems, *problems])


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.02), help="Time of each load.")
@click.option("--clients", default=32, show_default=True, type=click.IntRange(1), help="Clients that send.")
@click.option("--times", default=4.0, show_default=True, help="Multiple of the capacity to send; 0 to leave it out.")
@click.option("--deadline", default=2.0, show_default=True, help="Seconds that these requests give the server.")
@click.option("--other", type=click.Path(path_type=Path), help="Bundle to replace it by, of the same languages.")
@click.option("--replacements", default=20, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--ends", default=3, show_default=True, type=click.IntRange(0), help="Servers to end.")
@click.option("--kills", default=3, show_default=True, type=click.IntRange(0), help="Servers to kill.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes of the server.")
@click.option("--documents", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Share of documents.")
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@json_option
def main(
    bundle: Path,
    minutes: float,
    clients: int,
    times: float,
    deadline: float,
    other: Path | None,
    replacements: int,
    ends: int,
    kills: int,
    workers: int,
    documents: float,
    seed: int,
    as_json: bool,
) -> None:
    """Load `edgeformer serve` with clients that wait for their answers, with more requests than it can answer, while
    its bundle is replaced, and when it ends.

    Exits with 1 unless each request is translated (or, of too many, refused with 503 and Retry-After, or 504), no
    connection ends without an answer, the server does not grow, it answers as usual 2 seconds after too many requests,
    no answer is from two bundles or from one that was replaced before, and a server that is told to end first answers
    what was sent before. A server that is killed loses what it was answering, and no more: no process outlives it,
    and the next one removes its files. Loads of less than a minute do not say whether the server grows.
    """
    program = Program(bundle, clients, workers, documents, seed)
    parts = {"waiting": program.waiting(60 * minutes, times, deadline)}
    if other is not None:
        parts["replaced"] = program.replacing(other, replacements)
    if ends:
        parts["ended"] = program.ending(ends)
    if kills:
        parts["killed"] = program.killing(kills)
    results: dict[str, Result] = {}
    with stages({name: name.capitalize() for name in parts}, quiet=as_json) as progress:
        for name, part in parts.items():
            progress(name, 0.0)
            results |= dict(part)
            progress(name, 1.0)
    conclude(results, as_json=as_json)


if __name__ == "__main__":
    main()
