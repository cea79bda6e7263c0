"""A bundle that is replaced while clients send: no request may fail or be answered by two bundles together."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from edgeformer_bench.load.connection import Pool
from edgeformer_bench.load.phases import SECONDS, Phase, Watch
from edgeformer_bench.load.serving import Serving
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.files import staged_folder


class Expected(msgspec.Struct, frozen=True):
    """A request, and what each of two bundles alone answers."""

    request: bytes
    answers: tuple[list[str], list[str]]

    def made_by(self, texts: list[str]) -> str:
        """Which bundle an answer is from: ``first``, ``second``, both (``mixed``) or neither (``unknown``)."""
        if texts in self.answers:
            return ("first", "second")[self.answers.index(texts)]
        known = all(text in pair for text, *pair in zip(texts, *self.answers, strict=True))
        return "mixed" if known else "unknown"


def told_apart(requests: Sequence[bytes], first: list[list[str]], second: list[list[str]]) -> list[Expected]:
    """The requests whose answers tell two bundles apart: by two texts, where there are several.

    Raises:
        ConfigError: there are too few.
    """
    kept = [
        Expected(request, (one, other))
        for request, one, other in zip(requests, first, second, strict=True)
        if sum(mine != theirs for mine, theirs in zip(one, other, strict=True)) >= min(2, len(one))
    ]
    if len(kept) < len(requests) / 4 or all(len(each.answers[0]) == 1 for each in kept):
        raise ConfigError("The two bundles give too many equal translations; give another one.")
    return kept


async def answers(server: Serving, requests: Sequence[bytes]) -> list[list[str]]:
    """What the server answers to requests, one after the other."""
    pool = Pool(server.port)
    found = [_texts((await pool.ask(request, SECONDS)).body) for request in requests]
    await pool.close()
    return found


def _texts(body: bytes) -> list[str]:
    return [text["text"] for text in json.loads(body)["translations"]]


async def replaced(
    server: Serving,
    path: Path,
    bundles: tuple[Path, Path],
    expected: Sequence[Expected],
    clients: int,
    times: int,
    random: Random,
    seconds: float = 2.0,
) -> Phase:
    """Replace the bundle of a server every few seconds while clients send.

    Every answer must be from one of the two bundles, and from the new one if it was asked for afterwards.

    Args:
        server: the server.
        path: the bundle that it serves, a copy of the first one.
        bundles: what it is replaced by, in turns.
        expected: what clients send, and what may come back.
        clients: number of clients.
        times: how many times to replace it.
        random: draws the requests.
        seconds: time between two replacements.
    """
    watch, made, done = Watch(server), Counter[str](), asyncio.Event()
    served, since = "", 0.0  # the only bundle that may answer requests from then on; none while it is being replaced

    async def client() -> None:
        pool = Pool(server.port)
        while not done.is_set():
            chosen, sent = random.choice(expected), time.monotonic()
            answer = await watch.ask(pool, chosen.request)
            if answer is not None:
                name = chosen.made_by(_texts(answer.body))
                made[name] += 1
                made["late"] += bool(served) and since < sent and name not in (served, "mixed", "unknown")
        await pool.close()

    running = asyncio.gather(*(client() for _ in range(clients)))
    for number in range(1, times + 1):
        await asyncio.sleep(seconds)
        served = ""
        await asyncio.to_thread(replace, path, bundles[number % 2])
        served, since = ("first", "second")[number % 2], time.monotonic()
    await asyncio.sleep(seconds)
    done.set()
    await running
    problems = [f"{made[what]} answers: {what}" for what in ("mixed", "unknown", "late") if made[what]]
    problems += [f"no answer is from the {name} bundle" for name in ("first", "second") if not made[name]]
    return watch.phase({}, {f"answers: {name}": count for name, count in made.items()}, problems)


def replace(path: Path, replacement: Path) -> None:
    """Replace a bundle by a copy of another, as ``export --overwrite`` does."""
    with staged_folder(path, overwrite=True) as folder:
        shutil.copytree(replacement, folder, dirs_exist_ok=True)
