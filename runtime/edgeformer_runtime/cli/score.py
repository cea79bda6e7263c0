"""The command ``score``: log-probabilities of given translations, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.terminal import echo
from edgeformer_runtime.cli.text_input import BLOCK_LINES, line_blocks
from edgeformer_runtime.errors import DataError, InputError


@click.command()
@options.bundle
@click.option(
    "--source",
    required=True,
    type=click.Path(path_type=Path),
    help="Source text, plain or gzip, one sentence per line.",
)
@click.option("--target", required=True, type=click.Path(path_type=Path), help="Its translation, line by line.")
@click.option("--no-end-token", is_flag=True, help="Leave out the end token of each translation.")
@options.group("limits", max_batch_tokens=options.batch_tokens)
@options.group(
    "engine", truncate=options.truncate, device=options.device, threads=options.threads, engine=options.engine
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line: log-probability, its mean per token, tokens, their ids and scores.",
)
def score(
    bundle: Path,
    source: Path,
    target: Path,
    no_end_token: bool,
    limits: dict[str, int],
    engine: dict[str, Any],
    as_json: bool,
) -> None:
    """Compute the probability of given translations.

    Prints one line for each line of --source and --target: the natural logarithm of the probability of the target
    line, a tab, and its mean per token.
    """
    from edgeformer_runtime.translator import Translator

    translator = Translator.open(bundle, shortlist=False, **engine)
    done = 0
    for pairs in _pairs(source, target):
        texts, targets = zip(*pairs, strict=True)
        try:
            scores = translator.score(texts, targets, end_token=not no_end_token, **limits)
        except InputError as error:
            raise error.at(done + error.index) from None
        done += len(pairs)
        for result in scores:
            if as_json:
                names = ("log_probability", "mean", "tokens", "ids", "token_scores")
                echo(msgspec.json.encode({name: getattr(result, name) for name in names}).decode())
            else:
                echo(f"{result.log_probability:.4f}\t{result.mean:.4f}")


def _pairs(source: Path, target: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of two files in blocks of pairs.

    Raises:
        DataError: a file cannot be read, or the files have different numbers of lines.
    """
    with line_blocks((), source) as texts, line_blocks((), target) as targets:
        lines = zip_longest(chain.from_iterable(texts), chain.from_iterable(targets))
        while block := list(islice(lines, BLOCK_LINES)):
            text, translation = block[-1]  # missing lines come last
            if text is None or translation is None:
                shorter, longer = (source, target) if text is None else (target, source)
                raise DataError(f"`{shorter}` has fewer lines than `{longer}`; align them line by line.")
            yield block
