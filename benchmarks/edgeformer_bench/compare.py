"""Bundles against peers on the user's own text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench.latency import machine
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.rounds import Contest, Timing, Workload, speeds
from edgeformer_bench.systems import ours, peer
from edgeformer_runtime.bundle.open import Bundle, file_sha256, open_bundle
from edgeformer_runtime.source import encode_sources
from edgeformer_runtime.tokenizer import Tokenizer


class SystemResult(msgspec.Struct, kw_only=True):
    """One system of a comparison."""

    system: str
    """Its name."""
    version: str = ""
    """The engine and its version."""
    variant: str = ""
    """The settings that were fastest, where several were tried."""
    timing: Timing | None = None
    """Times of a call with one batch; none if it failed."""
    sentences_per_second: float = 0.0
    """Sentences over the time of all calls."""
    speed: float | None = None
    """How many times as fast as the reference it is, by the median."""
    identical: int | None = None
    """Sentences with the same output as the first bundle's."""
    error: str = ""
    """Why it could not be measured."""


class Comparison(msgspec.Struct, kw_only=True):
    """All systems on the same sentences, in one run, alternating."""

    machine: str
    """Processor and system."""
    sentences: int
    """Sentences of one round."""
    beam_size: int
    """Hypotheses kept per sentence."""
    batch_size: int
    """Sentences per call."""
    device: str
    """``cpu`` or ``cuda``."""
    threads: int
    """CPU threads of one operator."""
    rounds: int
    """Measured rounds over all sentences."""
    reference: str
    """The system that speeds are in proportion to."""
    systems: list[SystemResult]
    """Bundles first."""


def compare(
    bundles: Sequence[Path],
    texts: Sequence[str],
    *,
    against: Sequence[str] = (),
    run: Path | None = None,
    device: str = "cpu",
    threads: int = 1,
    beam_size: int | None = None,
    batch_size: int = 1,
    repeat: int = 5,
    optimum_python: str = "",
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> Comparison:
    """Measure bundles and peers. Every call decodes one batch of token ids; text is tokenized before.

    Args:
        bundles: folders of bundles with the same tokenizers.
        texts: sentences, taken ``batch_size`` at a time.
        against: names of :data:`~edgeformer_bench.peers.base.PEERS`.
        run: the run that the bundles were exported from; peers take their weights from it.
        device: ``cpu`` or ``cuda``.
        threads: CPU threads.
        beam_size: hypotheses kept; the first bundle's default if none.
        batch_size: sentences per call.
        repeat: measured rounds.
        optimum_python: interpreter that has Optimum; this one if empty.
        progress: called with ``convert`` or ``bench`` and the fraction done.

    Raises:
        ConfigError: there is no text or no run, or the tokenizers of bundles and run differ.
        InputTooLongError: a text has more tokens than the model takes.
        PeerError: a peer does not know the model, or its packages are missing.
    """
    opened = [open_bundle(path) for path in bundles]
    sources = _encode(opened[0], texts)
    if against and run is None:
        raise ConfigError("Peers need the weights; give the run that the bundle was exported from with --checkpoint.")
    _require_same_tokenizers(opened, run if against else None)
    beam_size = opened[0].manifest.generation.beam_size if beam_size is None else beam_size
    batches = [sources[start : start + batch_size] for start in range(0, len(sources), batch_size)]
    workloads = [Workload(beam_size=beam_size, sources=batch) for batch in batches]
    names = [path.name for path in bundles]
    if len({*names}) < len(names):
        names = [str(path) for path in bundles]
    with TemporaryDirectory() as work:
        contenders = ours(dict(zip(names, bundles, strict=True)), threads, device)
        for done, name in enumerate(against):
            assert run is not None
            progress("convert", done / len(against))
            contenders += peer(name, run, Path(work), threads, device=device, python=optimum_python)
        reference = contenders[len(bundles) if against else 0].name
        progress("bench", 0.0)
        with Contest(contenders) as contest:
            scores = contest.run(workloads, rounds=repeat, progress=lambda fraction: progress("bench", fraction))
            outputs = [contest.outputs(workload) for workload in workloads]
            versions = contest.versions
    results = []
    for contender in contenders:
        score = scores[contender.name]
        if score.error and contender in contenders[: len(bundles)]:
            raise PeerError(f"`{contender.name}` failed: {score.error}")
        result = SystemResult(
            system=contender.name,
            version=versions.get(contender.name, ""),
            variant=score.variant if len(contender.specs) > 1 else "",
            error=score.error,
        )
        if not score.error:
            result.timing = Timing.of(score.seconds)
            result.sentences_per_second = repeat * len(sources) / sum(score.seconds)
            result.identical = sum(
                mine == first
                for output in outputs
                for mine, first in zip(output[contender.name], output[contenders[0].name], strict=True)
            )
        results.append(result)
    speed = speeds({result.system: result.timing for result in results if result.timing is not None}, reference)
    for result in results:
        result.speed = speed.get(result.system)
    return Comparison(
        machine=machine(),
        sentences=len(sources),
        beam_size=beam_size,
        batch_size=batch_size,
        device=device,
        threads=threads,
        rounds=repeat,
        reference=reference,
        systems=results,
    )


def _encode(bundle: Bundle, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Token ids with end token of all texts but blank ones."""
    manifest = bundle.manifest
    tokenizer = Tokenizer.from_file(bundle.file(manifest.tokenizers.source))
    sources = [source.ids for source in encode_sources(tokenizer, texts, manifest.max_source_length) if source.ids]
    if not sources:
        raise ConfigError("There is no sentence to translate; give --source a file with text.")
    return sources


def _require_same_tokenizers(bundles: Sequence[Bundle], run: Path | None) -> None:
    """Make sure that a token id means the same to all systems."""

    def hashes(bundle: Bundle) -> tuple[str, str]:
        files, names = bundle.manifest.files, bundle.manifest.tokenizers
        return files[names.source].sha256, files[names.target].sha256

    for other in bundles[1:]:
        if hashes(other) != hashes(bundles[0]):
            raise ConfigError(f"Bundles `{bundles[0].path}` and `{other.path}` have different tokenizers.")
    if run is not None:
        from edgeformer.train.run import Run

        opened = Run.open(run)
        paths = opened.source_tokenizer_path, opened.target_tokenizer_path
        if tuple(map(file_sha256, paths)) != hashes(bundles[0]):
            raise ConfigError(f"Bundle `{bundles[0].path}` was not exported from run `{run}`: their tokenizers differ.")
