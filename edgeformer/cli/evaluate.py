"""The command ``evaluate``: quality of a bundle or a run on a test set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options

if TYPE_CHECKING:
    from edgeformer.quality.evaluation import Evaluation
    from edgeformer.quality.perplexity import Perplexity
    from edgeformer_runtime.search.options import DecodeChanges


@click.command()
@click.argument("model", type=options.BundlePath())
@click.option(
    "--source",
    required=True,
    type=click.Path(path_type=Path),
    help="Source text, plain or gzip, one sentence per line.",
)
@click.option("--reference", required=True, type=click.Path(path_type=Path), help="Its translation, line by line.")
@options.group("search", beam_size=options.beam, length_penalty=options.length_penalty)
@options.group(
    "scoring",
    tokenize=click.option(
        "--tokenize", default="13a", show_default=True, help="sacreBLEU tokenizer; `none` for text that is tokenized."
    ),
    lowercase=click.option("--lowercase", is_flag=True, help="Ignore case, as for a model that writes lowercase text."),
)
@click.option(
    "--split",
    is_flag=True,
    help="Split lines into sentences, as `translate` does, so that none is too long.",
)
@click.option("--perplexity", "with_perplexity", is_flag=True, help="Also compute the perplexity of the references.")
@options.group(
    "engine",
    truncate=options.truncate,
    device=options.device,
    threads=options.threads,
    shortlist=options.shortlist,
    engine=options.engine,
)
@click.option("--output", type=click.Path(path_type=Path), help="Also write the translations to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def evaluate(
    model: Path,
    source: Path,
    reference: Path,
    search: DecodeChanges,
    scoring: dict[str, Any],
    split: bool,
    with_perplexity: bool,
    engine: dict[str, Any],
    output: Path | None,
    as_json: bool,
) -> None:
    """Score the translations of a test set.

    Translates --source with MODEL, a bundle (or the name of a model) or a run folder, and compares with --reference.
    Prints BLEU and chrF with their sacreBLEU signatures, the share of exact matches, and sentences per second.

    With --perplexity, prints how well MODEL predicts the references token by token. Compare perplexities only between
    models with the same tokenizer.
    """
    from contextlib import nullcontext

    from edgeformer.data.text import read_pairs
    from edgeformer.quality.evaluation import evaluate_texts
    from edgeformer.quality.perplexity import perplexity
    from edgeformer.quality.translators import kind_of, open_translator
    from edgeformer_runtime.cli.output import atomic_text, one_line, print_json, refuse_input, stages
    from edgeformer_text import TextTranslator

    if output is not None:
        refuse_input(output, source, reference)
    pairs = read_pairs((source, reference))
    texts, references = ([pair[side] for pair in pairs] for side in (0, 1))
    translator = open_translator(model, **engine)
    with nullcontext() if output is None else atomic_text(output) as stream:
        names = {"translate": "Translating", **({"perplexity": "Scoring the references"} if with_perplexity else {})}
        with stages(names, quiet=as_json) as progress:
            result = evaluate_texts(
                translator,
                texts,
                references,
                TextTranslator(translator).decoding(**search) if split else translator.options(**search),
                split=split,
                **scoring,
                progress=lambda fraction: progress("translate", fraction),
            )
            predicted = None
            if with_perplexity:
                predicted = perplexity(translator, texts, references, lambda fraction: progress("perplexity", fraction))
        if stream is not None:
            stream.writelines(f"{one_line(line)}\n" for line in result.translations)
    if as_json:
        speed = {"beam_size": result.beam_size, "sentences_per_second": result.sentences_per_second}
        counted = {"truncated_sources": result.truncated, "counters": result.counters}
        sizes: dict[str, object] = {"split": True} if split else {**counted}
        sizes |= {} if predicted is None else {"perplexity": predicted}
        print_json({"model": model, "kind": kind_of(translator), "scores": result.scores, **speed, **sizes})
    else:
        _print_table(f"{model} ({kind_of(translator)})", result, predicted)


def _print_table(title: str, result: Evaluation, predicted: Perplexity | None) -> None:
    from edgeformer_runtime.cli.output import console, table

    scores = result.scores
    rows = table(f"{title}, {scores.sentences:,} sentences, beam {result.beam_size}", "", "")
    rows.add_row("BLEU", f"{scores.bleu:.2f}")
    rows.add_row("chrF2", f"{scores.chrf:.2f}")
    rows.add_row("exact match", f"{scores.exact_match:.2%}")
    if predicted is not None:
        rows.add_row("perplexity", f"{predicted.perplexity:.2f}")
        rows.add_row("tokens predicted", f"{predicted.tokens:,}")
        if predicted.left_out:
            rows.add_row("pairs left out of it", f"{predicted.left_out:,}")
    if result.truncated:
        rows.add_row("sources truncated", f"{result.truncated:,}")
    rows.add_row("sentences per second", f"{result.sentences_per_second:.1f}")
    console().print(rows)
    console().print(f"BLEU {scores.bleu_signature}\nchrF {scores.chrf_signature}")
