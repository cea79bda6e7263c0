"""The options of ``translate`` and ``distill`` for a Ray cluster, and a file that is translated by one."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import counting, refuse_folder
from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.files import atomic_file
from edgeformer_text.cli.block_output import BlockOutput, DoubtCounts, LineBlock
from edgeformer_text.cli.chosen_input import TranslationInput

if TYPE_CHECKING:
    from edgeformer_runtime.translator import Translator
    from edgeformer_text.distributed.ray_workers import RayWorkers, Work

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


def ray_files(
    chosen: TranslationInput, output_file: Path | None, whole: Mapping[str, Any], *, attention: bool
) -> tuple[Path, Path]:
    """Return the file that a cluster translates, and the one that it writes.

    Raises:
        click.UsageError: there are no such files, or they are not of lines of text.
    """
    if chosen.file is None or str(chosen.file) == "-" or output_file is None:
        raise click.UsageError("--engine ray needs --input FILE and --output FILE.")
    if attention or "format" in whole or chosen.kind:
        raise click.UsageError("--attention, --format and documents cannot be combined with --engine ray.")
    return chosen.file, output_file


def translate_file(
    translator: Translator,
    engine: dict[str, Any],
    address: str | None,
    work: Work[LineBlock, BlockOutput],
    input_file: Path,
    output_file: Path,
    settings: Mapping[str, Any],
) -> DoubtCounts:
    """Translate the lines of a file on a cluster; see :func:`process_file`.

    Args:
        translator: what has opened the bundle; it is closed.
        engine: see :class:`RayWorkers`.
        address: see :class:`RayWorkers`.
        work: what a worker does with a block.
        input_file: the file.
        output_file: where the translation goes.
        settings: what the output depends on besides the bundle, the input and the engine.
    """
    from edgeformer_text.distributed.ray_workers import RayWorkers

    workers = RayWorkers.of(translator, engine, address)
    translator.close()
    settings = {**settings, **{key: engine[key] for key in engine if key not in ("workers", "threads")}}
    return process_file(workers, work, input_file, output_file, settings)


@dataclass(frozen=True)
class LocalWorkers:
    """What :class:`RayWorkers` are on a cluster: an opened translator, whose own workers share a block."""

    translator: Translator

    @property
    def manifest_sha256(self) -> str:
        """SHA-256 of the bundle's manifest."""
        from edgeformer_runtime.bundle.open import file_sha256

        return file_sha256(self.translator.bundle.path / MANIFEST_FILE)

    def map(
        self, work: Work[LineBlock, BlockOutput], blocks: Iterable[tuple[int, LineBlock]]
    ) -> Generator[tuple[int, BlockOutput], None, None]:
        """Yield the number and the result of each block."""
        for number, block in blocks:
            yield number, work(self.translator, block)


def process_file(
    workers: RayWorkers | LocalWorkers,
    work: Work[LineBlock, BlockOutput],
    input_file: Path,
    output_file: Path,
    settings: Mapping[str, Any],
) -> DoubtCounts:
    """Do something with the lines of a file, block by block. What is done is kept in a folder beside the output until
    all is done, so that the same command continues after an interruption.

    Args:
        workers: what translates.
        work: what becomes of a block.
        input_file: the file.
        output_file: where the results go.
        settings: what the output depends on besides the bundle and the input.

    Returns:
        Sentences that may be wrong.

    Raises:
        ConfigError: the output cannot be written, or the folder is that of another input or of other settings.
        InputError: a line cannot be translated.
    """
    from edgeformer_runtime.bundle.open import file_sha256
    from edgeformer_text.distributed.block_folder import block_folder

    refuse_folder(output_file)
    if output_file.exists() and not output_file.is_file():
        raise ConfigError(f"`{output_file}` is not a file; give another name with --output.")
    job = {"bundle": workers.manifest_sha256, "input": file_sha256(input_file), **settings}
    with line_blocks((), input_file) as read:
        sizes = [len(lines) for lines in read]
    total, doubts = sum(sizes), DoubtCounts()
    with block_folder(output_file, job) as folder, counting("lines") as progress:
        done = folder.done(len(sizes))
        count = sum(sizes[number] for number in done)
        progress(count, total)
        with line_blocks((), input_file) as read, closing(workers.map(work, _remaining(read, sizes, done))) as outputs:
            for number, output in outputs:
                output.tell()
                folder.write(number, output.text.encode())
                doubts = doubts.merged(output.doubts)
                count += sizes[number]
                progress(count, total)
        if file_sha256(input_file) != job["input"]:
            raise ConfigError(f"`{input_file}` was changed meanwhile; delete `{folder.path}` and start again.")
        with atomic_file(output_file) as file:
            file.writelines(folder.read(number) for number in range(len(sizes)))
    return doubts


def _remaining(
    blocks: Iterable[list[str]], sizes: Sequence[int], done: Container[int]
) -> Iterator[tuple[int, LineBlock]]:
    """Numbered blocks of lines without those that are done."""
    for number, (lines, end) in enumerate(zip(blocks, accumulate(sizes), strict=False)):
        if number not in done:
            yield number, LineBlock(end - len(lines), lines)
