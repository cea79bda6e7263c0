"""Runs bundles in the current Python interpreter, possibly on an emulated processor; requires only the runtime.

Usage: ``python emulated_worker.py [--no-care] SOURCE BEAM BUNDLE...``, as ``emulated_cpus`` does. Prints one line of
JSON. ``--no-care`` leaves saturating products as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeformer_runtime.engine import integer_products, onnx_session
from edgeformer_runtime.selfcheck.golden import check_golden
from edgeformer_runtime.translator import Translator


def outcome(bundle: str, texts: Sequence[str], beam: int) -> dict[str, Any]:
    """Return the golden examples that failed, and tokens and score of the best translation of each text."""
    translator = Translator.open(bundle, threads=1)
    golden = check_golden(translator)
    best = [translation.best for translation in translator.translate(texts, beam_size=beam)]
    return {
        "golden_cases": golden.cases,
        "golden_problems": golden.problems,
        "ids": [hypothesis.ids for hypothesis in best],
        "scores": [hypothesis.score or 0.0 for hypothesis in best],
    }


def main(arguments: Sequence[str]) -> None:
    """Print whether integer products saturate here, and the outcome of each bundle."""
    source, beam, *bundles = (word for word in arguments if word != "--no-care")
    saturate = integer_products.products_saturate()
    if "--no-care" in arguments:
        vars(onnx_session)["products_saturate"] = lambda: False
    texts = Path(source).read_text(encoding="utf-8").splitlines()
    outcomes = {bundle: outcome(bundle, texts, int(beam)) for bundle in bundles}
    print(json.dumps({"saturate": saturate, "bundles": outcomes}))


if __name__ == "__main__":
    main(sys.argv[1:])
