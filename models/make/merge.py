"""Makes one corpus folder of what ``collect.py`` wrote: ``python -m models.make.merge TEXT OUT --test FILE.en …``.

Leaves out every pair of which a side is in one of the test files, whatever its case, punctuation and spaces, so that
the published test splits stay unseen. Of the rest, 500 pairs each are for validation and testing. ``--permissive``
takes the sources with permissive licenses only.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from edgeformer.data.corpora import ParallelCorpus, TextOrigin, write_corpus
from edgeformer.data.filters import FilterReport
from edgeformer.data.text import TextPairs, content_sha256, read_lines, read_pairs
from models.make.collect import SOURCES

HELD_OUT = 500


def folded(text: str) -> str:
    """What two sentences have in common that differ in case, punctuation and spaces only."""
    return "".join(filter(str.isalnum, text.casefold()))


def main() -> None:
    """Write train, valid and test in both languages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="files of sentences in either language")
    parser.add_argument("--permissive", action="store_true")
    options = parser.parse_args()
    unseen = {folded(line) for path in options.test for line in read_lines(path)}
    files = sorted(options.text.glob("permissive/*.tsv" if options.permissive else "*/*.tsv"))
    pairs = list(dict.fromkeys(pair for path in files for pair in read_pairs([path])))
    kept = [pair for pair in pairs if unseen.isdisjoint(map(folded, pair))]
    random.Random(1).shuffle(kept)
    corpus = ParallelCorpus(
        train=TextPairs.of(kept[2 * HELD_OUT :]),
        valid=kept[:HELD_OUT],
        test=kept[HELD_OUT : 2 * HELD_OUT],
        report=FilterReport(kept=len(kept), empty=0, too_long=0, ratio=0, duplicate=0),
        provenance=TextOrigin(
            name="collected-en-fr",
            licence=" AND ".join(sorted({SOURCES[path.stem].license for path in files})),
            origin="collected with models/make/collect.py",
            sha256={path.stem: content_sha256(path) for path in files},
        ),
        source_language="en",
        target_language="fr",
    )
    write_corpus(corpus, options.out)
    print(f"{len(kept):,} of {len(pairs):,} pairs from {len(files)} sources")


if __name__ == "__main__":
    main()
