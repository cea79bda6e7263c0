"""Makes shortlists, from sentence pairs, which are aligned word by word, or from the lists of an imported model; and
measures what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer.data.corpora import load_corpus
from edgeformer.data.text import Pair as TextPair
from edgeformer.data.text import read_pairs
from edgeformer.importers.run_folder import SHORTLIST_FILE
from edgeformer.quality.scores import bleu_metric
from edgeformer.run.folder import Run
from edgeformer_export.sample import spread
from edgeformer_export.writer import ExportError
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.search.forced_steps import Pair
from edgeformer_runtime.search.shortlist import Shortlist
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator

CORPUS, IMPORTED = "corpus", "imported"
"""Words that may be given instead of files."""
ALWAYS = 200
"""Number of frequent tokens that every sentence may use."""
BEST = 100
"""Maximum number of target tokens of a source token."""
MAX_PAIRS = 200_000
"""Maximum number of sentence pairs to learn from; more are sampled evenly."""
HELD_OUT = 500
"""Number of sentences to measure a shortlist on."""


class ShortlistReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a shortlist costs, measured on text that it was not learned from."""

    origin: str
    """Where the lists come from."""
    sentences: int
    """Number of sentences measured."""
    median_tokens: float
    """Median number of target tokens that a sentence may use."""
    kept: float
    """Share of the tokens of greedy search without shortlist that the shortlist has, from 0 to 1."""
    identical: int
    """Number of sentences whose translation is the same with and without shortlist."""
    bleu: float | None
    """BLEU of greedy search with shortlist; ``None`` without references."""
    bleu_whole: float | None
    """BLEU of greedy search with the whole vocabulary."""


@dataclass(frozen=True)
class MadeShortlist:
    """A shortlist, and text that it was not learned from."""

    shortlist: Shortlist
    """The lists."""
    origin: str
    """Where they come from."""
    held_out: Sequence[TextPair]
    """Sentence pairs to measure it on."""
    tokenize: str | None = "13a"
    """sacreBLEU's tokenizer; ``None`` if the targets of these pairs are not references."""


def make_shortlist(run: Run, given: Sequence[str], data_dir: Path | None) -> MadeShortlist:
    """Make the shortlist of a run.

    Args:
        run: the run.
        given: ``corpus`` for the run's training corpus; ``imported`` for the lists that an imported model came with; or
            one file of sentence pairs, or two aligned files.
        data_dir: folder that contains the corpus.

    Raises:
        DataError: a file is missing or damaged, or there are too few pairs.
        ExportError: the run was imported without lists.
    """
    if list(given) == [IMPORTED]:
        return MadeShortlist(_imported(run), "the imported model", run.sample[-HELD_OUT:], tokenize=None)
    if list(given) == [CORPUS]:
        corpus = load_corpus(run.recipe.data, data_dir)
        pairs = list(corpus.train.rows(spread(range(len(corpus.train)), MAX_PAIRS)))
        held_out = spread(corpus.valid, HELD_OUT)
        origin, tokenize = f"the training corpus, {corpus.provenance.name}", corpus.provenance.tokenize
    else:
        files = [str((data_dir or Path()) / file) for file in given]
        pairs = read_pairs(files)
        held_out = spread(pairs, min(HELD_OUT, len(pairs) // 10))
        measured = set(held_out)
        pairs = [pair for pair in pairs if pair not in measured]
        origin, tokenize = " and ".join(Path(file).name for file in given), "13a"
    if not pairs or not held_out:
        raise ExportError("A shortlist needs at least ten sentence pairs; give more text with --shortlist.")
    pairs = spread(pairs, MAX_PAIRS)
    source, target = run.source_tokenizer, run.target_tokenizer
    ids = list(
        zip(
            source.encode_batch([text for text, _ in pairs], special_tokens=True),
            target.encode_batch([text for _, text in pairs]),
            strict=True,
        )
    )
    shortlist = learned(ids, source.vocab_size, target.vocab_size, run.special)
    if run.recipe.tokenizer.lowercase:
        held_out = [(text, reference.lower()) for text, reference in held_out]
    return MadeShortlist(shortlist, origin, held_out, tokenize)


def learned(
    pairs: Sequence[Pair],
    source_vocab_size: int,
    target_vocab_size: int,
    special: SpecialTokens,
    *,
    always: int = ALWAYS,
    best: int = BEST,
) -> Shortlist:
    """Make a shortlist from sentence pairs, by word alignment.

    Args:
        pairs: token ids of source and target.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
        special: special tokens of the target; those that are never generated are in no list.
        always: number of frequent tokens that every sentence may use; the end token is one of them.
        best: maximum number of target tokens of a source token.
    """
    source, target, count = align(pairs, source_vocab_size, target_vocab_size)
    never = never_generated(special)
    allowed = ~np.isin(target, never)
    source, target = source[allowed], target[allowed]
    order = np.lexsort((target, -count[allowed], source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    kept = rank < best
    ends = np.cumsum(np.bincount(source[kept], minlength=source_vocab_size))
    counts = np.bincount([token for _, tokens in pairs for token in tokens], minlength=target_vocab_size)
    return Shortlist(min(always, target_vocab_size - len(never)), ends, by_frequency(counts, special), target[kept])


def never_generated(special: SpecialTokens) -> list[int]:
    """List the tokens that no search may generate."""
    return sorted({special.bos, *special.suppress, *special.forbid} - {special.eos})


def by_frequency(counts: NDArray[np.int64], special: SpecialTokens) -> NDArray[np.int64]:
    """Order all target tokens: the end token, the others from the most to the least frequent, those never generated.

    Args:
        counts: number of occurrences of each token, ``(V,)``.
        special: special tokens of the target.
    """
    rank = counts.astype(np.float64)
    rank[never_generated(special)] = -1
    rank[special.eos] = np.inf
    return np.argsort(-rank, kind="stable")


def _imported(run: Run) -> Shortlist:
    """The lists of an imported model, whose first tokens are candidates of every sentence."""
    path = run.path / SHORTLIST_FILE
    if not path.is_file():
        raise ExportError(
            f"Run `{run.path}` has no imported shortlist; give --shortlist corpus, or files of sentence pairs."
        )
    with np.load(path, allow_pickle=False) as arrays:
        frequent, offsets, tokens = int(arrays["frequent"]), arrays["offsets"], arrays["tokens"]
    special, size = run.special, run.target_tokenizer.vocab_size
    never = never_generated(special)
    allowed = ~np.isin(tokens, never)
    sizes = np.add.reduceat(np.append(allowed, False), offsets[:-1]) * (np.diff(offsets) > 0)
    sizes = np.pad(sizes, (0, run.source_tokenizer.vocab_size - len(sizes)))
    counts = np.bincount(tokens, minlength=size)
    counts[:frequent] += counts.max(initial=0) + 1
    always = 1 + sum(token not in {*never, special.eos} for token in range(frequent))
    return Shortlist(always, np.cumsum(sizes), by_frequency(counts, special), tokens[allowed].astype(np.int64))


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


ROUNDS = 5
"""Rounds of expectation maximization; the likelihood hardly changes after these."""
NULL = 1
"""Number of places for the empty source word, which explains target tokens that no source token does."""


def align(
    pairs: Sequence[Pair], source_vocab_size: int, target_vocab_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Estimate from sentence pairs what source tokens become.

    Args:
        pairs: token ids of source and target.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.

    Returns:
        For each two tokens that occur together, the source token, ascending, the target token, and the expected number
        of times that the first becomes the second, ``(E,)`` each.
    """
    null = source_vocab_size  # one more source token
    keys, places, at = [], [], 0
    for source, target in pairs:
        row = np.array([*set(source), *[null] * NULL], np.int64)
        column = np.asarray(target, np.int64)
        keys.append((row[None, :] * target_vocab_size + column[:, None]).ravel())
        places.append(np.repeat(np.arange(at, at + len(column)), len(row)))
        at += len(column)
    entry, index = np.unique(np.concatenate(keys), return_inverse=True)
    place = np.concatenate(places)  # which target position each link explains
    source_of, target_of = np.divmod(entry, target_vocab_size)
    probability = count = np.ones(len(entry), np.float64)
    for _ in range(ROUNDS):
        weight = probability[index]
        weight /= np.bincount(place, weight)[place]
        count = np.bincount(index, weight).astype(np.float64)
        probability = count / np.bincount(source_of, count)[source_of]
    words = source_of != null
    return source_of[words], target_of[words], count[words]
