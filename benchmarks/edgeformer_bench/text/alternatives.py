"""Measures alternatives by their confidence relative to the best: how many are about as good as the translation.

About as good means a chrF of at most 5 points less. The same by the probability of the first token, in which
alternatives differ, relative to the most probable one.

Usage: ``python -m edgeformer_bench.text.alternatives BUNDLE --source FILE --reference FILE``
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from random import Random

import click
import sacrebleu

from edgeformer.data.text import read_lines
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.translator import Translator

CLOSE = 5.0
"""Difference in chrF."""
CONFIDENCE = (0, 0.5, 0.6, 0.8, 1.01)
FIRST_TOKEN = (0, 0.001, 0.01, 0.1, 1.01)


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--reference", required=True, type=click.Path(path_type=Path), help="Its translation.")
@click.option("--limit", default=120, show_default=True, help="Sentences, drawn at random.")
@click.option("--alternatives", "count", default=3, show_default=True, help="Alternatives per sentence.")
def main(bundle: Path, source: Path, reference: Path, limit: int, count: int) -> None:
    """Translate sentences with alternatives."""
    pairs = sorted(set(zip(read_lines(source), read_lines(reference), strict=True)))
    pairs = Random(1).sample(pairs, min(limit, len(pairs)))
    translator = Translator.open(bundle, threads=1, truncate=True)
    changes = {"n_best": count + 1, "return_alternatives": True, "return_token_scores": True}
    translations = translator.translate([text for text, _ in pairs], translator.options(**changes))  # type: ignore[arg-type]
    found = []
    for (_, wanted), translation in zip(pairs, translations, strict=True):
        best, *others = translation.hypotheses
        most = max(hypothesis.confidence or 0.0 for hypothesis in translation.hypotheses)
        quality = sacrebleu.sentence_chrf(best.text, [wanted]).score
        for other in others:
            is_close = sacrebleu.sentence_chrf(other.text, [wanted]).score >= quality - CLOSE
            scores = (best.token_scores or (0.0,))[0], (other.token_scores or (0.0,))[0]
            found.append(((other.confidence or 0.0) / most, math.exp(scores[1] - scores[0]), is_close))
    for index, (name, edges) in enumerate((("confidence", CONFIDENCE), ("first token", FIRST_TOKEN))):
        rows = table(f"{bundle}, {len(pairs):,} sentences, {name}", "from", "to", "alternatives", "about as good")
        for low, high in pairwise(edges):
            close = [entry[2] for entry in found if low <= min(entry[index], 1.0) < high]
            rows.add_row(str(low), str(min(high, 1)), str(len(close)), str(sum(close)))
        console().print(rows)


if __name__ == "__main__":
    main()
