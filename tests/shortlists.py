"""Bundles with random shortlists."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import numpy as np

from edgeformer.run.folder import Run
from edgeformer_export.export import write_graphs
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.shortlist.lists import never_generated
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.search.shortlist import Shortlist
from tests.store import RunSettings, Store


def lists_of(run: Run, always: int, per_token: int = 12) -> Shortlist:
    """Random lists; the unknown token is in those of all sentences, as it always is in CTranslate2."""
    random, (sources, targets) = (
        np.random.default_rng(0),
        (run.source_tokenizer.vocab_size, run.target_tokenizer.vocab_size),
    )
    special = run.special
    never = never_generated(special)
    first = [special.eos] if special.unk is None else [special.eos, special.unk]
    allowed = np.setdiff1d(np.arange(targets), [*never, *first])
    frequent = np.concatenate((first, random.permutation(allowed), never))
    tokens = np.concatenate([random.choice(allowed, per_token, replace=False) for _ in range(sources)])
    return Shortlist(min(always, len(first) + len(allowed)), np.arange(1, sources + 1) * per_token, frequent, tokens)


def bundle_of(
    store: Store,
    shortlist: Shortlist,
    folder: Path,
    *,
    variant: str = "post_norm",
    precision: Precision = "int8",
    **settings: Unpack[RunSettings],
) -> Path:
    """Write the bundle of a run for the kernels, from graphs that are traced once for all tests."""
    model_graphs = ModelGraphs(store.run(variant, **settings), shortlist=shortlist)
    model_graphs.traced = store.traced(variant, **settings)
    folder.mkdir()
    write_graphs(model_graphs, folder, precision)
    return folder
