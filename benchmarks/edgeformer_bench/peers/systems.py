"""The systems that can be compared: bundles, and peers with the weights of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgeformer_bench.peers.base import Contender, Kind, Spec, Weights
from edgeformer_bench.peers.ctranslate2 import BATCH_TOKENS, environments
from edgeformer_bench.peers.process import convert

WEIGHTS: tuple[Weights, ...] = ("int8", "float32")
"""How converted peers store their weights."""
CUDA_TYPES: dict[Weights, str] = {"int8": "int8_float16", "float32": "float16"}
"""CTranslate2's compute type on a GPU for each way to store weights."""
REFERENCE = "CTranslate2 int8"
"""The system that speeds are relative to."""


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """How peers run."""

    threads: int = 1
    """CPU threads per operator."""
    device: str = "cpu"
    """``cpu`` or ``cuda``; Optimum supports the CPU only."""
    forms_batches: bool = False
    """Whether peers form batches themselves, which adds variants to try."""
    optimum_python: str = ""
    """Python interpreter with Optimum; the current one if empty."""


def ours(bundles: Mapping[str, Path], threads: int, device: str = "cpu") -> list[Contender]:
    """Create contenders from bundles by name in tables."""
    return [
        Contender(name, (Spec(kind="bundle", model=str(path), threads=threads, device=device),))
        for name, path in bundles.items()
    ]


def peer(name: str, run: Path, work: Path, options: PeerOptions) -> list[Contender]:
    """Create the contenders of one peer, with the weights of a run.

    Args:
        name: one of :data:`~edgeformer_bench.peers.base.PEERS`.
        run: a finished run.
        work: folder for models in the peer's format; existing models are reused.
        options: how peers run.

    Raises:
        PeerError: the peer does not support the model, or its packages are missing.
    """
    threads, device = options.threads, options.device
    if name in {"torch", "torch-compile"}:
        compiled = name == "torch-compile"
        spec = Spec(kind="torch", model=str(run), threads=threads, device=device, settings={"compile": compiled})
        return [Contender("torch.compile" if compiled else "torch eager", (spec,), "float32")]
    kind: Kind = "ctranslate2" if name == "ctranslate2" else "optimum"
    python = options.optimum_python if kind == "optimum" and options.optimum_python else sys.executable
    models = {weights: work / f"{name}-{weights}" for weights in WEIGHTS}
    if missing := {weights: model for weights, model in models.items() if not model.exists()}:
        convert(kind, run, missing, python)
    if kind == "optimum":
        return [
            Contender(
                f"Optimum {weights}", (Spec(kind=kind, model=str(model), threads=threads, python=python),), weights
            )
            for weights, model in models.items()
        ]
    types = {weights: CUDA_TYPES[weights] if device == "cuda" else weights for weights in WEIGHTS}
    return [
        Contender(f"CTranslate2 {types[weights]}", _variants(model, types[weights], options), weights)
        for weights, model in models.items()
    ]


def _variants(model: Path, compute_type: str, options: PeerOptions) -> tuple[Spec, ...]:
    choices = [{}] if not options.forms_batches else [{"batch_tokens": size} for size in BATCH_TOKENS]
    if options.forms_batches and options.threads > 1:
        choices += [{**choice, "parallel_batches": True} for choice in choices]
    return tuple(
        Spec(
            kind="ctranslate2",
            model=str(model),
            threads=options.threads,
            device=options.device,
            settings={"compute_type": compute_type, **choice},
            environment=environment,
        )
        for environment in (environments() if options.device == "cpu" else [{}])
        for choice in choices
    )
