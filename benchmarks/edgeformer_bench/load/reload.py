"""Replaces a bundle while clients send, and looks for answers that failed or that two models made together.

Usage: ``python -m edgeformer_bench.load.reload BUNDLE OTHER``
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import replace as replace_field
from pathlib import Path
from random import Random

import click
import msgspec

from edgeformer_bench.load.connection import Pool
from edgeformer_bench.load.promises import Setup, logged, promise
from edgeformer_bench.load.serving import Phrases, Serving, request_bytes, translation_fields
from edgeformer_runtime.cli.output import counting
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.files import staged_folder

SIZES = (1, 1, 1, 8, 8, 100)
"""Texts of the requests; the largest ones need several batches."""
MADE_BY = ("first", "second", "mixed", "unknown")
"""Which bundle an answer is from."""
REQUESTS = 60
SECONDS = 60.0
"""Time limit of a request."""


class Expected(msgspec.Struct, frozen=True):
    """A request, and what each of two models alone answers."""

    request: bytes
    answers: tuple[list[str], list[str]]


class Reload(msgspec.Struct, frozen=True):
    """What happened."""

    clients: int
    replaced: int
    """How many times the bundle was replaced."""
    outcomes: dict[str, int]
    """Number of requests by status, or by what happened instead."""
    answers: dict[str, int]
    """Number of translations by the model that made them; ``mixed`` if both did, ``unknown`` if neither."""
    late: int
    """Requests that were sent after the bundle had been replaced, and were answered by the one before."""
    switches: int
    """How many times the model that answered was another than for the request before."""
    errors: list[str]
    """Errors in the server's log."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        problems = [f"{count} requests: {what}" for what, count in self.outcomes.items() if what != "200"]
        problems += [f"{self.answers[what]} answers: {what}" for what in ("mixed", "unknown") if what in self.answers]
        if self.late:
            problems.append(f"{self.late} requests were answered by a bundle that had been replaced before")
        if not self.switches:
            problems.append("the replacement was not noticed")
        return problems + logged(self.errors)

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        return [
            ("clients", f"{self.clients}"),
            ("replaced, times", f"{self.replaced}"),
            *((f"requests: {what}", f"{count:,}") for what, count in sorted(self.outcomes.items())),
            *((f"answers: {what}", f"{self.answers.get(what, 0):,}") for what in MADE_BY),
            ("late", f"{self.late:,}"),
        ]


async def expected_answers(server: Serving, requests: list[bytes]) -> list[list[str]]:
    """Ask a server with a single model.

    Raises:
        ConfigError: it does not translate a request.
    """
    pool, answers = Pool(server.port), []
    for request in requests:
        answer = await pool.ask(request, SECONDS)
        if answer.status != 200:
            raise ConfigError(f"The server answers {answer.status}: {answer.body[:300].decode()}")
        answers.append(_texts(answer.body))
    await pool.close()
    return answers


def _texts(body: bytes) -> list[str]:
    return [text["text"] for text in json.loads(body)["translations"]]


def told_apart(requests: list[bytes], first: list[list[str]], second: list[list[str]]) -> list[Expected]:
    """The requests whose answers tell the models apart.

    Raises:
        ConfigError: there are too few.
    """
    kept = [
        Expected(request, (one, other))
        for request, one, other in zip(requests, first, second, strict=True)
        if _differ(one, other)
    ]
    if len(kept) < len(requests) / 4 or all(len(each.answers[0]) == 1 for each in kept):
        raise ConfigError("The two bundles give too many equal translations; give another one.")
    return kept


def _differ(first: list[str], second: list[str]) -> bool:
    different = sum(one != other for one, other in zip(first, second, strict=True))
    return different >= min(2, len(first))  # with one difference, a mixture might look like one of them


class _Clients:
    """Clients that send requests and compare the answers.

    Args:
        port: port of the server.
        expected: what they send, and what may come back.
        seed: seed of their choice.
    """

    def __init__(self, port: int, expected: list[Expected], seed: int) -> None:
        self._pool, self._expected, self._random = Pool(port), expected, Random(seed)
        self.outcomes, self.answers = Counter[str](), Counter[str]()
        self.is_replacing, self._current, self._since = False, 0, 0.0
        self.late = self.switches = self._last = 0
        self.is_done = False

    async def run(self) -> None:
        """Send requests, one after the other."""
        while not self.is_done:
            chosen, sent = self._random.choice(self._expected), time.monotonic()
            outcome, answer = await self._pool.outcome(chosen.request, SECONDS)
            self.outcomes[outcome] += 1
            if answer is not None and answer.status == 200:
                self._compare(chosen, _texts(answer.body), sent)

    def replaced(self, current: int) -> None:
        """Remember that requests from now on must be answered by a model."""
        self.is_replacing, self._current, self._since = False, current, time.monotonic()

    def _compare(self, chosen: Expected, texts: list[str], sent: float) -> None:
        if texts in chosen.answers:
            model = chosen.answers.index(texts)
            self.answers[MADE_BY[model]] += 1
            self.late += model != self._current and self._since < sent and not self.is_replacing
            self.switches += model != self._last
            self._last = model
        else:
            known = all(text in pair for text, *pair in zip(texts, *chosen.answers, strict=True))
            self.answers["mixed" if known else "unknown"] += 1

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


async def reloaded(
    server: Serving,
    path: Path,
    bundles: tuple[Path, Path],
    asking: _Clients,
    clients: int,
    times: int,
    seconds: float,
) -> Reload:
    """Replace the bundle of a server while clients send.

    Args:
        server: the server.
        path: the bundle that it serves, a copy of the first one.
        bundles: what it is replaced with, in turns.
        asking: what clients send.
        clients: number of clients.
        times: how many times to replace it.
        seconds: time between two replacements.
    """
    tasks = [asyncio.ensure_future(asking.run()) for _ in range(clients)]
    with counting("replacements") as progress:
        progress(0, times)
        for number in range(1, times + 1):
            await asyncio.sleep(seconds)
            asking.is_replacing = True  # from now on, both may answer
            await asyncio.to_thread(replace, path, bundles[number % 2])
            asking.replaced(number % 2)
            progress(number, times)
    await asyncio.sleep(seconds)
    asking.is_done = True
    await asyncio.gather(*tasks)
    await asking.close()
    return Reload(
        clients, times, dict(asking.outcomes), dict(asking.answers), asking.late, asking.switches, server.errors()
    )


def replace(path: Path, replacement: Path) -> None:
    """Replace a bundle by a copy of another, as ``export --overwrite`` does."""
    with staged_folder(path, overwrite=True) as folder:
        shutil.copytree(replacement, folder, dirs_exist_ok=True)


@promise
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--times", default=20, show_default=True, type=click.IntRange(1), help="How often to replace the bundle.")
@click.option("--seconds", default=2.0, show_default=True, help="Time between two replacements.")
def main(setup: Setup, other: Path, times: int, seconds: float) -> Reload:
    """Replace BUNDLE by OTHER, which translates the same languages, and back, while clients send.

    Exits with 1 unless each request is translated by one of the two, none by both, and none by a bundle that
    had been replaced before the request was sent.
    """
    phrases, random, bundle = Phrases(setup.source, setup.seed), Random(setup.seed), setup.bundle
    texts = [[phrases.next() for _ in range(random.choice(SIZES))] for _ in range(REQUESTS)]
    with tempfile.TemporaryDirectory() as folder:
        path, alone = Path(folder) / "bundle", list[list[list[str]]]()
        served, requests = replace_field(setup, bundle=path), list[bytes]()
        for each in (other, bundle):
            replace(path, each)
            with served.serving() as (server, _):
                fields = translation_fields(server)
                requests = [request_bytes(part, fields) for part in texts]
                alone.append(asyncio.run(expected_answers(server, requests)))
        expected = told_apart(requests, alone[1], alone[0])
        with served.serving() as (server, _):
            clients = _Clients(server.port, expected, setup.seed)
            return asyncio.run(reloaded(server, path, (bundle, other), clients, setup.clients, times, seconds))


if __name__ == "__main__":
    main()
