"""Runs bundles in the Python it is started with, perhaps on an emulated processor: needs the runtime alone.

Usage: ``python emulated_worker.py [--no-care] SOURCE BEAM BUNDLE...``, as ``emulated_cpus`` does; prints one line of
JSON. ``--no-care`` leaves saturating products as they are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeformer_runtime.engine import integer_products as onnx_arithmetic
from edgeformer_runtime.engine import onnx_session
from edgeformer_runtime.selfcheck.golden import check_golden
from edgeformer_runtime.translator import Translator


def outcome(bundle: str, texts: Sequence[str], beam: int) -> dict[str, Any]:
    """Golden examples that failed, and tokens and score of the best translation of each text."""
    translator = Translator.open(bundle, threads=1)
    golden = check_golden(translator)
    best = [one.best for one in translator.translate(texts, beam_size=beam)]
    return {
        "golden_cases": golden.cases,
        "golden_problems": golden.problems,
        "ids": [one.ids for one in best],
        "scores": [one.score or 0.0 for one in best],
    }


def main(arguments: Sequence[str]) -> None:
    """Print whether integer products saturate here, and the outcome of each bundle."""
    source, beam, *bundles = (one for one in arguments if one != "--no-care")
    saturate = onnx_arithmetic.products_saturate()
    if "--no-care" in arguments:
        vars(onnx_session)["products_saturate"] = lambda: False
    texts = Path(source).read_text(encoding="utf-8").splitlines()
    outcomes = {bundle: outcome(bundle, texts, int(beam)) for bundle in bundles}
    print(json.dumps({"saturate": saturate, "bundles": outcomes}))


if __name__ == "__main__":
    main(sys.argv[1:])
