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
        help="Never generate the tokens of this text in a row; may be repeated.",
    ),
    disable_unk=click.option("--disable-unk", is_flag=True, help="Never generate the unknown token."),
    patience=click.option(
        "--patience",
        type=float,
        help="Finish a sentence when it has --beam times this many finished hypotheses. Default: 1.",
    ),
    beam_shrinks=click.option(
        "--beam-shrinks/--beam-refills",
        default=None,
        help="Whether a finished hypothesis shrinks the beam by one, as in Marian. Default: the model's.",
    ),
    early_stopping=click.option(
        "--early-stopping/--no-early-stopping",
        default=None,
        help="Whether a sentence ends at the --beam-th finished hypothesis, even if an unfinished one scores higher. "
        "Default: the model's.",
    ),
    length_includes_end=click.option(
        "--length-includes-end/--length-excludes-end",
        default=None,
        help="Whether the length of --length-penalty counts the end token. Default: it does.",
    ),
    coverage_penalty=click.option(
        "--coverage-penalty", type=float, help="Weight of a penalty on source tokens that get no attention."
    ),
    prefix_bias_beta=click.option(
        "--prefix-bias-beta", type=float, help="Favor --target-prefix rather than force it: above 0 and below 1."
    ),
    max_len_a=click.option(
        "--max-len-a", type=float, help="Limit each output to A times the source length plus B tokens."
    ),
    max_len_b=click.option("--max-len-b", type=click.IntRange(0), help="B of --max-len-a."),
    max_ngram_repeats=click.option(
        "--max-ngram-repeats",
        type=click.IntRange(0),
        help="Stop an output that ends with the same n-gram this many times in a row; 0 disables it.",
    ),
    max_input_length=click.option(
        "--max-input-length", type=click.IntRange(1), help="Truncate lines to this number of tokens."
    ),
    sampling_topk=click.option(
        "--sampling-topk",
        type=click.IntRange(0),
        help="Sample from this number of most probable tokens; 0 samples from all. Requires --beam 1.",
    ),
    sampling_topp=click.option(
        "--sampling-topp", type=float, help="Sample from the most probable tokens that together have this probability."
    ),
    sampling_temperature=click.option(
        "--sampling-temperature", type=float, help="Values above 1 make samples more random."
    ),
    seed=click.option("--seed", type=click.IntRange(0), help="Seed of the samples. Default: 0."),
    return_alternatives=click.option(
        "--alternatives",
        is_flag=True,
        help="Let the --nbest translations differ in the first token after the target prefix.",
    ),
    min_alternative_expansion_prob=click.option(
        "--min-alternative-prob", type=float, help="Leave out alternatives whose first token is less probable."
    ),
    return_token_scores=click.option(
        "--token-scores",
        is_flag=True,
        help="With --json, print the log-probability of each token, and the geometric mean of their probabilities as "
        "confidence.",
    ),
    replace_unknowns=click.option(
        "--replace-unknowns",
        is_flag=True,
        help="Replace unknown tokens with the source text that they attend to most.",
    ),
    max_batch_tokens=options.batch_tokens,
)
"""Passes the argument ``search``, a dictionary of ``DecodeChanges``."""
