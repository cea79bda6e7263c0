"""Measures a glossary: the share of its terms that are realized, without and with it, and what else it changes.

Usage: ``python -m edgeformer_bench.text.glossary BUNDLE --source FILE --glossary TERMS.tsv``
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click

from edgeformer.data.text import read_lines
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, table
from edgeformer_runtime.text import Glossary, TextOptions, TextTranslator
from edgeformer_runtime.text.block import Block
from edgeformer_runtime.translator import Translator

_WORD = re.compile(r"\w+")


def realized(wanted: Counter[str], text: str) -> int:
    """Return how many of the wanted terms a translation has, each at most as often as it is wanted."""
    return sum(
        min(count, len(re.findall(rf"(?<!\w){re.escape(term)}(?!\w)", text, re.IGNORECASE)))
        for term, count in wanted.items()
    )


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--glossary", "terms", required=True, type=click.Path(path_type=Path), help="Terms and translations.")
def main(bundle: Path, source: Path, terms: Path) -> None:
    """Translate the sentences that have a term, without and with the glossary."""
    glossary, translator = Glossary.from_file(terms), Translator.open(bundle, threads=1)
    wanted = {
        line: Counter(item.text.lower() for item in glossary.items(Block.plain(line), ()))
        for line in read_lines(source)
    }
    texts = [line for line, found in wanted.items() if found]
    total = sum(wanted[text].total() for text in texts)
    plain = [result.text for result in TextTranslator(translator).translate(texts)]
    forced = [result.text for result in TextTranslator(translator, TextOptions(glossary=glossary)).translate(texts)]
    rows = table(f"{bundle}, {len(texts):,} sentences, {total:,} terms", "", "realized", "share")
    for name, outputs in (("without the glossary", plain), ("with it", forced)):
        count = sum(realized(wanted[text], output) for text, output in zip(texts, outputs, strict=True))
        rows.add_row(name, f"{count:,}", f"{count / max(1, total):.1%}")
    console().print(rows)
    lost = added = 0
    for text, before, after in zip(texts, plain, forced, strict=True):
        old, new = Counter(_WORD.findall(before.lower())), Counter(_WORD.findall(after.lower()))
        lost += (old - new).total()
        added += (new - old - Counter(_WORD.findall(" ".join(wanted[text].elements())))).total()
    console().print(f"Words that the glossary replaced: {lost:,}; words that are new and in no term: {added:,}.")


if __name__ == "__main__":
    main()
