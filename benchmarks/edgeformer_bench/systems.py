"""The systems that can be compared, made from a run and its bundles."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from edgeformer_bench.peers.base import Spec
from edgeformer_bench.peers.ctranslate2 import BATCH_TOKENS, environments
from edgeformer_bench.process import convert
from edgeformer_bench.rounds import Contender

PRECISIONS = ("int8", "float32")
"""Of the peers that are converted."""
CUDA_TYPES = {"int8": "int8_float16", "float32": "float16"}
"""What CTranslate2 computes in on a GPU, by how its weights are stored."""
REFERENCE = "CTranslate2 int8"
"""The system that speeds are given in proportion to."""


def ours(bundles: Mapping[str, Path], threads: int, device: str = "cpu") -> list[Contender]:
    """Bundles by the name that tables give them."""
    return [
        Contender(name, (Spec(kind="bundle", model=str(path), threads=threads, device=device),))
        for name, path in bundles.items()
    ]


def peer(
    name: str,
    run: Path,
    work: Path,
    threads: int,
    *,
    device: str = "cpu",
    texts: bool = False,
    python: str = "",
) -> list[Contender]:
    """The systems of one peer, with the weights of a run.

    Args:
        name: one of :data:`~edgeformer_bench.peers.base.PEERS`.
        run: a finished run.
        work: folder for models in the peer's format; those that are there are used as they are.
        threads: CPU threads.
        device: ``cpu`` or ``cuda``; Optimum is for the CPU only.
        texts: whether it will make batches by itself, so that there are more variants to try.
        python: interpreter that has Optimum; this one if empty.

    Raises:
        PeerError: the peer does not know the model, or its packages are missing.
    """
    if name in {"torch", "torch-compile"}:
        compiled = name == "torch-compile"
        spec = Spec(kind="torch", model=str(run), threads=threads, device=device, settings={"compile": compiled})
        return [Contender("torch.compile" if compiled else "torch eager", (spec,))]
    python = python if name == "optimum" and python else sys.executable
    models = {precision: work / f"{name}-{precision}" for precision in PRECISIONS}
    if missing := {precision: model for precision, model in models.items() if not model.exists()}:
        convert(name, run, missing, python)
    if name == "ctranslate2":
        types = {precision: CUDA_TYPES[precision] if device == "cuda" else precision for precision in PRECISIONS}
        return [
            Contender(f"CTranslate2 {types[precision]}", _variants(model, types[precision], threads, device, texts))
            for precision, model in models.items()
        ]
    return [
        Contender(f"Optimum {precision}", (Spec(kind=name, model=str(model), threads=threads, python=python),))
        for precision, model in models.items()
    ]


def _variants(model: Path, compute_type: str, threads: int, device: str, texts: bool) -> tuple[Spec, ...]:
    choices = [{}] if not texts else [{"batch_tokens": size} for size in BATCH_TOKENS]
    if texts and threads > 1:
        choices += [{**choice, "parallel_batches": True} for choice in choices]
    return tuple(
        Spec(
            kind="ctranslate2",
            model=str(model),
            threads=threads,
            device=device,
            settings={"compute_type": compute_type, **choice},
            environment=environment,
        )
        for environment in (environments() if device == "cpu" else [{}])
        for choice in choices
    )
