"""The systems that can be compared: bundles, and peers with the weights of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeformer.errors import ConfigError
from edgeformer_bench.peers.base import Contender, PeerError, PeerSpec, Weights
from edgeformer_bench.peers.ctranslate2 import BATCH_TOKENS, environments, write_vocabulary_map
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.errors import missing_package
from edgeformer_runtime.search.shortlist import Shortlist

CUDA_TYPES: dict[Weights, str] = {"int8": "int8_float16", "float32": "float16"}
"""CTranslate2's compute type on a GPU for each way to store weights."""


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Settings that all peers share."""

    threads: int = 1
    device: str = "cpu"
    """``cpu`` or ``cuda``, which only bundles, PyTorch and CTranslate2 support."""
    forms_batches: bool = False
    """Whether peers form batches themselves, which adds variants to try."""
    shortlist: Shortlist | None = None
    """Lists of target tokens by source token; CTranslate2 is then also measured with them, as its vocabulary map."""


def ours(
    bundles: Mapping[str, Path], threads: int, device: str = "cpu", *, shortlist: bool = True, engine: str = "auto"
) -> list[Contender]:
    """Create contenders from bundles by name in tables."""
    settings: dict[str, Any] = {} if shortlist else {"shortlist": False}
    if engine != "auto":
        settings["engine"] = engine
    return [
        Contender(name, (PeerSpec(kind="bundle", model=str(path), threads=threads, device=device, settings=settings),))
        for name, path in bundles.items()
    ]


def firefox(bundle: Bundle, model: Path, options: PeerOptions) -> Contender:
    """Create the contender of Firefox's engine, with the files that a bundle's model was imported from.

    Args:
        bundle: the bundle.
        model: the folder of these files, or ``firefox:PAIR``.
        options: how peers run; with a shortlist, searches are restricted by the one among the files.

    Raises:
        ConfigError: the bundle's model is another one.
        DataError: the model cannot be downloaded.
    """
    from edgeformer.importers.read import fetch, is_record_of

    downloaded = fetch(str(model))
    if not is_record_of(bundle.manifest.provenance.origin(), downloaded):
        raise ConfigError(
            f"Bundle `{bundle.path}` was not imported from `{model}`; give the model of Firefox that it comes from "
            "with --checkpoint."
        )
    settings = {"shortlist": options.shortlist is not None}
    spec = PeerSpec(kind="bergamot", model=str(downloaded.path), threads=options.threads, settings=settings)
    return Contender("Firefox's engine", (spec,))


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
        spec = PeerSpec(kind="torch", model=str(run), threads=threads, device=device, settings={"compile": compiled})
        return [Contender("torch.compile" if compiled else "torch eager", (spec,))]
    models = {weights: work / f"{name}-{weights}" for weights in CUDA_TYPES}
    for weights, model in models.items():
        if not model.exists():
            _convert(run, model, weights)
    types = {weights: CUDA_TYPES[weights] if device == "cuda" else weights for weights in models}
    contenders = [
        Contender(f"CTranslate2 {types[weights]}", _variants(model, types[weights], options))
        for weights, model in models.items()
    ]
    if options.shortlist is None:
        return contenders
    for weights, model in models.items():
        write_vocabulary_map(options.shortlist, model)
        variants = _variants(model, types[weights], options, use_vmap=True)
        contenders.append(Contender(f"CTranslate2 {types[weights]} vmap", variants))
    return contenders


def _convert(run: Path, out: Path, weights: Weights) -> None:
    """Write a run's model in CTranslate2's format."""
    from edgeformer.run.folder import Run

    try:
        from edgeformer_bench.peers.ctranslate2_model import convert_run
    except ModuleNotFoundError as error:
        raise PeerError(missing_package("This comparison", error.name, "bench,train")) from None
    convert_run(Run.open(run), out, weights)


def _variants(model: Path, compute_type: str, options: PeerOptions, **settings: bool) -> tuple[PeerSpec, ...]:
    choices: list[dict[str, Any]] = (
        [{}] if not options.forms_batches else [{"batch_tokens": size} for size in BATCH_TOKENS]
    )
    if options.forms_batches and options.threads > 1:
        choices += [{**choice, "parallel_batches": True} for choice in choices]
    return tuple(
        PeerSpec(
            kind="ctranslate2",
            model=str(model),
            threads=options.threads,
            device=options.device,
            settings={"compute_type": compute_type, **settings, **choice},
            environment=environment,
        )
        for environment in (environments() if options.device == "cpu" else [{}])
        for choice in choices
    )
