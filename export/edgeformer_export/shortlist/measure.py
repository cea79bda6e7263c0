"""The cost of a shortlist: tokens that it lacks, and BLEU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeformer.quality.scores import bleu_metric
from edgeformer_export.report import ShortlistReport
from edgeformer_export.shortlist.lists import MadeShortlist
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator


def measure(made: MadeShortlist, whole: Translator, listing: Translator) -> ShortlistReport:
    """Translate the held-out text greedily with and without shortlist, and compare.

    Args:
        made: the shortlist.
        whole: the bundle without its shortlist.
        listing: the bundle with its shortlist.
    """
    too_long = whole.too_long([source for source, _ in made.held_out])
    pairs = [pair for index, pair in enumerate(made.held_out) if index not in too_long and pair[0].strip()]
    texts, references = [source for source, _ in pairs], [target for _, target in pairs]
    without, within = (engine.translate(texts, beam_size=1, return_scores=False) for engine in (whole, listing))
    lists = [made.shortlist.usable(translation.source.ids) for translation in without]
    kept = [usable[list(translation.best.ids)] for translation, usable in zip(without, lists, strict=True)]

    def bleu(translations: Sequence[Translation]) -> float | None:
        if made.tokenize is None:
            return None
        outputs = [translation.text for translation in translations]
        return round(float(bleu_metric(made.tokenize).corpus_score(outputs, [references]).score), 2)

    return ShortlistReport(
        origin=made.origin,
        sentences=len(pairs),
        median_tokens=float(np.median([usable.sum() for usable in lists])),
        kept=round(float(np.concatenate([np.ones(1), *kept]).mean()), 6),
        identical=sum(a.best.ids == b.best.ids for a, b in zip(without, within, strict=True)),
        bleu=bleu(within),
        bleu_whole=bleu(without),
    )
