"""Measures the numbers of translations: the share of sentences whose digits are right, without and with their check.

Right means here, more strictly than the check: the same groups of digits on both sides, without separators of
thousands. Numbers in words, as in many references, count as wrong.

Usage: ``python -m edgeformer_bench.text.numbers BUNDLE --source FILE [--reference FILE]``
"""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from random import Random

import click

from edgeformer.data.text import read_lines
from edgeformer.quality.scores import score
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.text import TextOptions, TextTranslator
from edgeformer_runtime.translator import Translator

_THOUSANDS = re.compile(r"(?<=\d)[\u202f\u00a0 ,.](?=\d{3}(?!\d))")


def has_same_digits(source: str, target: str) -> bool:
    """Return whether two texts have the same groups of digits, each as often."""
    return _groups(source) == _groups(target)


def _groups(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+", _THOUSANDS.sub("", text)))


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--reference", type=click.Path(path_type=Path), help="Its translation, to score.")
@click.option("--limit", default=400, show_default=True, help="Sentences with digits, drawn at random.")
def main(bundle: Path, source: Path, reference: Path | None, limit: int) -> None:
    """Translate sentences with digits, without and with the check of numbers."""
    lines = read_lines(source)
    pairs = list(zip(lines, read_lines(reference) if reference else lines, strict=True))
    pairs = sorted({pair for pair in pairs if re.search(r"\d", pair[0])})
    pairs = Random(1).sample(pairs, min(limit, len(pairs)))
    texts, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    translator = Translator.open(bundle, threads=1)
    rows = table(f"{bundle}, {len(texts):,} sentences", "", "right", "marked", "BLEU", "chrF", "seconds")
    if reference:
        right = sum(map(has_same_digits, texts, references)) / len(texts)
        rows.add_row("reference", f"{right:.1%}", "", "", "", "")
    for name, is_checked in (("unchecked", False), ("checked", True)):
        begin = time.perf_counter()
        results = TextTranslator(translator, TextOptions(check_numbers=is_checked)).translate(texts)
        seconds = time.perf_counter() - begin
        outputs = [result.text for result in results]
        right = sum(map(has_same_digits, texts, outputs)) / len(texts)
        marked = sum(any(sentence.wrong_numbers for sentence in result.sentences) for result in results) / len(texts)
        scores = score(outputs, references, "13a")
        quality = (f"{scores.bleu:.1f}", f"{scores.chrf:.1f}") if reference else ("", "")
        rows.add_row(name, f"{right:.1%}", f"{marked:.1%}" if is_checked else "", *quality, f"{seconds:.0f}")
    console().print(rows)


if __name__ == "__main__":
    main()
