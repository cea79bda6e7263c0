"""Measures what a period does for statements without theirs: what ``export`` decides by, and BLEU.

Usage: ``python -m edgeformer_bench.text.period BUNDLE --source FILE --reference FILE``
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import click

from edgeformer.data.text import read_lines
from edgeformer.quality.scores import score
from edgeformer_bench.commands import Command
from edgeformer_export.traits.period import measure_period
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.text.surface import without_final_punctuation
from edgeformer_runtime.translator import Translator


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--reference", required=True, type=click.Path(path_type=Path), help="Its translation.")
@click.option("--limit", default=400, show_default=True, help="Statements, drawn at random.")
def main(bundle: Path, source: Path, reference: Path, limit: int) -> None:
    """Translate statements without and with their period; final punctuation is left out of the scores."""
    pairs = dict(zip(read_lines(source), read_lines(reference), strict=True))
    statements = sorted(pair for pair in pairs.items() if pair[0].endswith(".") and pair[1].endswith("."))
    statements = Random(1).sample(statements, min(limit, len(statements)))
    texts, references = ([without_final_punctuation(pair[side]) for pair in statements] for side in (0, 1))
    translator = Translator.open(bundle, threads=1, truncate=True)
    rows = table(f"{bundle}, {len(texts):,} statements", "", "BLEU", "chrF")
    for name, mark in (("without period", ""), ("with it", ".")):
        translations = translator.translate([text + mark for text in texts])
        outputs = [without_final_punctuation(translation.text) for translation in translations]
        scores = score(outputs, references, "13a")
        rows.add_row(name, f"{scores.bleu:.1f}", f"{scores.chrf:.1f}")
    console().print(rows)
    report = measure_period(translator, [text for text, _ in statements], limit)
    if report is not None:
        console().print(f"Log-probability: {report.gain:+.3f} ± {report.error:.3f} ({report.sentences} statements).")


if __name__ == "__main__":
    main()
