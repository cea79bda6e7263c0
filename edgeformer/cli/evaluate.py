"""The command ``evaluate``: quality of a bundle or a torch model on a test set."""

from __future__ import annotations

from pathlib import Path

import click

from edgeformer_runtime.cli import options


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--source", required=True, type=click.Path(path_type=Path), help="Source text, plain or gzip, a sentence per line."
)
@click.option("--reference", required=True, type=click.Path(path_type=Path), help="Its translation, line by line.")
@options.beam
@options.length_penalty
@click.option(
    "--tokenize", default="13a", show_default=True, help="sacreBLEU tokenizer; none for text that is tokenised already."
)
@options.truncate
@click.option("--output", type=click.Path(path_type=Path), help="Also write the translations to this file.")
@options.device
@options.threads
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def evaluate(
    model: Path,
    source: Path,
    reference: Path,
    beam: int | None,
    length_penalty: float | None,
    tokenize: str,
    truncate: bool,
    output: Path | None,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Translate --source with MODEL, a bundle or a run folder, and score it against --reference.

    Prints BLEU and chrF with their sacreBLEU signatures, the share of exact matches, and sentences per second.
    """
    from contextlib import nullcontext

    from edgeformer.quality.evaluation import evaluate_text, open_system
    from edgeformer_runtime.cli.output import atomic_text, console, one_line, print_json, refuse_input, stages, table

    if output is not None:
        refuse_input(output, source, reference)
    system = open_system(model, device=device, threads=threads)
    with nullcontext() if output is None else atomic_text(output) as stream:
        with stages({"translate": "Translating"}, quiet=as_json) as progress:
            result = evaluate_text(
                system,
                source,
                reference,
                beam_size=beam,
                length_penalty=length_penalty,
                tokenize=tokenize,
                truncate=truncate,
                progress=lambda fraction: progress("translate", fraction),
            )
        if stream is not None:
            stream.writelines(f"{one_line(line)}\n" for line in result.translations)
    scores = result.scores
    if as_json:
        speed = {"beam_size": result.beam_size, "sentences_per_second": result.sentences_per_second}
        sizes = {"cut_sources": result.cut, "counters": result.counters}
        print_json({"model": model, "kind": system.kind, "scores": scores, **speed, **sizes})
        return
    rows = table(f"{model} ({system.kind}), {scores.sentences:,} sentences, beam {result.beam_size}", "", "")
    rows.add_row("BLEU", f"{scores.bleu:.2f}")
    rows.add_row("chrF2", f"{scores.chrf:.2f}")
    rows.add_row("exact match", f"{scores.exact_match:.2%}")
    if result.cut:
        rows.add_row("sources cut", f"{result.cut:,}")
    rows.add_row("sentences per second", f"{result.sentences_per_second:.1f}")
    console().print(rows)
    console().print(f"BLEU {scores.bleu_signature}\nchrF {scores.chrf_signature}")
