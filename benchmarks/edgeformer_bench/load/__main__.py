"""Loads a server, and looks at whether it keeps its promises: ``python -m edgeformer_bench.load BUNDLE``."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from random import Random

import click

from edgeformer_bench.commands import Command
from edgeformer_bench.load.phases import Phase, overloaded, steady
from edgeformer_bench.load.report import conclude, json_option
from edgeformer_bench.load.serving import Phrases, request_bytes, serving, translation_fields, upload
from edgeformer_runtime.cli.output import stages


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.02), help="Time of each load.")
@click.option("--clients", default=32, show_default=True, type=click.IntRange(1), help="Clients that send.")
@click.option("--times", default=4.0, show_default=True, help="Multiple of the capacity to send; 0 to leave it out.")
@click.option("--deadline", default=2.0, show_default=True, help="Seconds that these requests give the server.")
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
    workers: int,
    documents: float,
    seed: int,
    as_json: bool,
) -> None:
    """Load `edgeformer serve` with clients that wait for their answers, then with more requests than it can answer.

    Exits with 1 unless each request is translated (or, of too many, refused with 503 and Retry-After, or 504), no
    connection ends without an answer, the server does not grow, and it answers as usual 2 seconds after too many
    requests. Loads of less than a minute do not say whether the server grows.
    """
    phrases, random = Phrases(seed), Random(seed)
    results: dict[str, Phase] = {}
    with (
        stages({"waiting": "Waiting", "overloaded": "Overloaded"}, quiet=as_json) as progress,
        serving(bundle, "--threads", "1", "--workers", str(workers)) as server,
    ):
        fields = translation_fields(server)

        def make(**more: float) -> bytes:
            if random.random() < documents:
                text = phrases.next()
                return upload(f"<p>{text}</p><p>{text}</p>".encode(), "a.html", fields)
            return request_bytes([phrases.next()], {**fields, **more})

        progress("waiting", 0.0)
        usual = results["waiting"] = asyncio.run(steady(server, make, clients, 60 * minutes))
        if times:
            progress("overloaded", 0.0)
            hurried = partial(make, timeout=deadline)
            results["overloaded"] = asyncio.run(
                overloaded(server, hurried, usual, times, 60 * minutes, deadline, random)
            )
    conclude(results, as_json=as_json)


if __name__ == "__main__":
    main()
