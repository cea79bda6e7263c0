"""Options of the command ``translate`` that say how to search: a field of ``DecodeOptions`` each."""

from __future__ import annotations

import click

from edgeformer_runtime.cli import options

search = options.group(
    "search",
    beam_size=options.beam,
    n_best=click.option(
        "--nbest", type=click.IntRange(1), default=1, show_default=True, help="Translations per sentence, best first."
    ),
    length_penalty=options.length_penalty,
    min_length=click.option(
        "--min-length", type=click.IntRange(0), default=0, show_default=True, help="Minimum number of tokens."
    ),
    max_length=click.option(
        "--max-length", type=click.IntRange(1), help="Maximum number of tokens. Default: the model's limit."
    ),
    no_repeat_ngram_size=click.option(
        "--no-repeat-ngram", type=click.IntRange(0), help="Forbid repeating n-grams of this size; 0 allows all."
    ),
    repetition_penalty=click.option(
        "--repetition-penalty", type=float, help="Values above 1 make tokens that were generated before less likely."
    ),
    suppress_tokens=click.option(
        "--suppress-token", metavar="TOKEN", multiple=True, help="Never generate this token; may be repeated."
    ),
    suppress_sequences=click.option(
        "--suppress-sequence",
        metavar="TEXT",
        multiple=True,
        help="Never generate the tokens of this text one after the other; may be repeated.",
    ),
    disable_unk=click.option("--disable-unk", is_flag=True, help="Never generate the unknown token."),
    max_batch_tokens=options.batch_tokens,
)
"""Passes the argument ``search``, a dictionary of ``DecodeChanges``."""
