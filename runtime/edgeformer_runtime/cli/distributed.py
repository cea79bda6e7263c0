"""The options of ``translate`` and ``distill`` for a Ray cluster, and a file that is translated by one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import console, counting, print_warnings, refuse_folder
from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.cli.translating.doubts import Doubts
from edgeformer_runtime.cli.translating.line_output import json_line, plain_lines, truncation_note
from edgeformer_runtime.cli.translating.whole_texts import TextWork
from edgeformer_runtime.errors import ConfigError, InputError
from edgeformer_runtime.files import atomic_file

if TYPE_CHECKING:
    from edgeformer_runtime.decoding.options import DecodeOptions
    from edgeformer_runtime.distributed.ray_workers import RayWorkers, Work
    from edgeformer_runtime.text.options import TextOptions
    from edgeformer_runtime.translator import Translator

cluster_options = options.group(
    "cluster",
    engine=options.engine_option(
        "engine_name",
        "ray",
        more=" ray: the same, and each of the --workers is a process of a Ray cluster, for very long texts.",
    ),
    address=click.option(
        "--ray-address",
        metavar="ADDRESS",
        help="Use this Ray cluster, such as 10.0.0.1:6379 or auto. Default: start one on this machine.",
    ),
)
"""Passes the argument ``cluster``, a dictionary of those that were given."""


def uses_ray(cluster: Mapping[str, str]) -> bool:
    """Return whether the options ask for Ray."""
    if cluster["engine"] != "ray" and "address" in cluster:
        raise click.UsageError("--ray-address needs --engine ray.")
    return cluster["engine"] == "ray"


def ray_workers(translator: Translator, engine: dict[str, Any], cluster: Mapping[str, str]) -> RayWorkers:
    """Workers with the bundle that a translator has opened; the translator is closed.

    Raises:
        ConfigError: ``edgeformer[ray]`` is not installed.
    """
    from edgeformer_runtime.distributed.ray_workers import RayWorkers

    workers = RayWorkers.of(translator, engine, cluster.get("address"))
    translator.close()
    return workers


class Block(NamedTuple):
    """Lines that a worker translates together."""

    first: int
    """Zero-based position of the first in the file."""
    lines: list[str]


class BlockOutput(NamedTuple):
    """What a worker returns."""

    text: str
    """What is written for the lines of the block."""
    notes: list[str]
    """What to tell the user."""
    doubts: Doubts | None = None
    """Sentences of texts, and which of them may be wrong."""


def translated_lines(
    translator: Translator, block: Block, *, decoding: DecodeOptions, target_prefix: str | None, as_json: bool
) -> BlockOutput:
    """Translate lines of one sentence each.

    Raises:
        InputError: a line cannot be translated; its index is that in the file.
    """
    try:
        translations = translator.translate(block.lines, decoding, target_prefix=target_prefix)
    except InputError as error:
        raise error.at(block.first + error.index) from None
    notes = [truncation_note(number, translation) for number, translation in enumerate(translations, block.first + 1)]
    lines = (json_line(item) if as_json else plain_lines(item, decoding.n_best) for item in translations)
    return BlockOutput("".join(lines), [note for note in notes if note])


def translated_text_lines(
    translator: Translator, block: Block, *, text_options: TextOptions, decoding: DecodeOptions, as_json: bool
) -> BlockOutput:
    """Translate lines of several sentences each."""
    from edgeformer_runtime.text.text_translator import TextTranslator

    texts = TextWork.of(TextTranslator(translator, text_options), decoding, as_json=as_json)
    return BlockOutput("".join(texts.block(block.lines)), [], texts.doubts)


def translate_file(
    workers: RayWorkers,
    work: Work[Block, BlockOutput],
    input_file: Path,
    output_file: Path,
    settings: Mapping[str, Any],
) -> None:
    """Translate the lines of a file. What is done is kept in a folder beside the output until all is done.

    Raises:
        ConfigError: the output cannot be written, or the folder is that of another input or of other settings.
    """
    from edgeformer_runtime.bundle.open import file_sha256
    from edgeformer_runtime.distributed.block_folder import block_folder

    refuse_folder(output_file)
    if output_file.exists() and not output_file.is_file():
        raise ConfigError(f"`{output_file}` is not a file; give another name with --output.")
    job = {"bundle": workers.manifest_sha256, "input": file_sha256(input_file), **settings}
    with line_blocks((), input_file) as read:
        lines = list(read)
    starts = [0, *accumulate(map(len, lines))]
    doubts: Doubts | None = None
    with block_folder(output_file, job) as folder, counting("lines") as progress:
        done = folder.done(len(lines))
        rest = [number for number in range(len(lines)) if number not in done]
        count = sum(len(lines[number]) for number in done)
        progress(count, starts[-1])
        with closing(workers.map(work, [Block(starts[number], lines[number]) for number in rest])) as outputs:
            for position, output in outputs:
                folder.write(rest[position], output.text.encode())
                for note in output.notes:
                    console(stderr=True).print(note)
                doubts = output.doubts if doubts is None else doubts.merged(output.doubts)
                count += len(lines[rest[position]])
                progress(count, starts[-1])
        with atomic_file(output_file) as file:
            file.writelines(folder.read(number) for number in range(len(lines)))
    print_warnings(doubts.warnings("; --json tells which") if doubts else ())
