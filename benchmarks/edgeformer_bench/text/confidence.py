"""Measures what the confidence of a sentence says about the quality of its translation.

Usage: ``python -m edgeformer_bench.text.confidence BUNDLE --source FILE --reference FILE``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from edgeformer.data.text import read_pairs
from edgeformer.quality.scores import metrics
from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.translator import MIN_CONFIDENCE, Translator

MIN_SENTENCES = 4
"""Fewer sentences have no halves to compare."""


@dataclass(frozen=True)
class Usefulness:
    """How confidence and quality go together."""

    sentences: int
    pearson: float | None
    """Correlation of a sentence's confidence with its chrF; ``None`` if one of them is the same for all sentences."""
    spearman: float | None
    """Correlation of their ranks."""
    bleu: float
    """BLEU of all sentences."""
    most_confident_bleu: float
    """BLEU of the half with the highest confidence."""
    least_confident_bleu: float
    """BLEU of the other half."""
    doubtful: float
    """Share of the sentences that are doubtful, from 0 to 1."""
    doubtful_chrf: float | None
    """Mean chrF of the doubtful sentences; ``None`` if there are none."""
    other_chrf: float | None
    """Mean chrF of the others."""


def usefulness(
    confidence: Sequence[float],
    outputs: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    min_confidence: float = MIN_CONFIDENCE,
) -> Usefulness:
    """Compare the confidence of translations with their quality.

    Args:
        confidence: confidence of each translation.
        outputs: the translations.
        references: their references.
        tokenize: sacreBLEU's tokenizer.
        min_confidence: confidence below which a translation is doubtful.

    Raises:
        ConfigError: there are too few sentences, or the tokenizer cannot be used.
    """
    if len(outputs) < MIN_SENTENCES:
        raise ConfigError(f"There must be at least {MIN_SENTENCES} sentences, but there are {len(outputs)}.")
    bleu, chrf = metrics(tokenize)
    quality = np.array(
        [chrf.sentence_score(output, [reference]).score for output, reference in zip(outputs, references, strict=True)]
    )
    values = np.array(confidence)
    is_doubtful = values < min_confidence

    def corpus_bleu(indices: Sequence[int]) -> float:
        return float(bleu.corpus_score([outputs[i] for i in indices], [[references[i] for i in indices]]).score)

    order = np.argsort(-values, kind="stable").tolist()
    half = len(order) // 2
    return Usefulness(
        len(outputs),
        _correlation(values, quality),
        _correlation(ranks(values), ranks(quality)),
        corpus_bleu(range(len(outputs))),
        corpus_bleu(order[:half]),
        corpus_bleu(order[half:]),
        float(np.mean(is_doubtful)),
        float(quality[is_doubtful].mean()) if is_doubtful.any() else None,
        float(quality[~is_doubtful].mean()) if not is_doubtful.all() else None,
    )


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (last - counts + 1 + last) / 2
    return means[inverse]


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--reference", required=True, type=click.Path(path_type=Path), help="Its translation, line by line.")
@click.option("--tokenize", default="13a", show_default=True, help="sacreBLEU tokenizer.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def main(bundle: Path, source: Path, reference: Path, tokenize: str, as_json: bool) -> None:
    """Translate a test set, and correlate the confidence of each sentence with its chrF."""
    pairs = [pair for pair in read_pairs([source, reference]) if pair[0].strip()]
    with Translator.open(bundle, threads=1) as translator:
        translations = translator.translate([text for text, _ in pairs], return_token_scores=True)
        least = translator.min_confidence
    confidence = [translation.best.confidence or 0.0 for translation in translations]
    outputs = [translation.text for translation in translations]
    result = usefulness(confidence, outputs, [wanted for _, wanted in pairs], tokenize, least)
    if as_json:
        print_json(asdict(result))
        return
    rows = table(f"{bundle}, {result.sentences:,} sentences", "", "value")
    for name, correlation in (("Pearson, with chrF", result.pearson), ("Spearman, with chrF", result.spearman)):
        rows.add_row(name, "–" if correlation is None else f"{correlation:.3f}")
    rows.add_row(f"doubtful, below {least:.2f}", f"{result.doubtful:.1%}")
    for name, chrf in (("chrF of doubtful sentences", result.doubtful_chrf), ("chrF of the others", result.other_chrf)):
        rows.add_row(name, "–" if chrf is None else f"{chrf:.1f}")
    rows.add_row("BLEU", f"{result.bleu:.2f}")
    rows.add_row("BLEU, most confident half", f"{result.most_confident_bleu:.2f}")
    rows.add_row("BLEU, least confident half", f"{result.least_confident_bleu:.2f}")
    console().print(rows)


if __name__ == "__main__":
    main()
