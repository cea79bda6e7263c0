"""Makes one corpus folder of what ``collect.py`` wrote: ``python models/merge.py TEXT OUT --test FILE.en …``.

Leaves out every pair of which a side is in one of the test files, whatever its case, punctuation and spaces, so that
the published test splits stay unseen. Of the rest, 500 pairs each are for validation and testing. ``--permissive``
takes the sources with permissive licenses only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from pathlib import Path

from collect import SOURCES


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
    unseen = {folded(line) for path in options.test for line in path.read_text("utf-8").splitlines()}
    files = sorted(options.text.glob("permissive/*.tsv" if options.permissive else "*/*.tsv"))
    pairs = dict.fromkeys(line for path in files for line in path.read_text("utf-8").splitlines())
    kept = [line.split("\t") for line in pairs if unseen.isdisjoint(map(folded, line.split("\t")))]
    random.Random(1).shuffle(kept)
    parts = {"valid": kept[:500], "test": kept[500:1000], "train": kept[1000:]}
    options.out.mkdir(parents=True)
    hashes: dict[str, dict[str, str]] = {}
    for name, part in parts.items():
        for side, language in enumerate(("en", "fr")):
            content = "".join(f"{pair[side]}\n" for pair in part).encode()
            (options.out / f"{name}.{language}").write_bytes(content)
            hashes.setdefault(name, {})[f"{name}.{language}"] = hashlib.sha256(content).hexdigest()
    licenses = " AND ".join(sorted({SOURCES[path.stem].license for path in files}))
    report = {
        "provenance": {
            "name": "collected-en-fr",
            "licence": licenses,
            "origin": "collected with models/collect.py",
            "sha256": {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        },
        "source_language": "en",
        "target_language": "fr",
        "pairs": {name: len(part) for name, part in parts.items()},
        "filter": {"kept": len(kept), **dict.fromkeys(("empty", "too_long", "ratio", "duplicate", "digits"), 0)},
        "files": hashes,
    }
    (options.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"{len(kept):,} of {len(pairs):,} pairs from {len(files)} sources")


if __name__ == "__main__":
    main()
