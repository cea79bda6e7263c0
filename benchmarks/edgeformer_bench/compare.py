"""Compares bundles with peers on the user's own text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from edgeformer.errors import ConfigError
from edgeformer_bench.latency import BenchmarkOptions, Conditions
from edgeformer_bench.peers.base import BERGAMOT, ONNXRUNTIME, Contender, PeerError
from edgeformer_bench.peers.systems import PeerOptions, firefox, ours, peer
from edgeformer_bench.rounds import Contest, Result, Workload
from edgeformer_runtime.bundle.open import Bundle, file_sha256, open_bundle
from edgeformer_runtime.bundle.tokenizer_file import bundle_tokenizer
from edgeformer_runtime.engine.cpus import available_cpus, useful_threads
from edgeformer_runtime.engine.session import chosen_engine
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.shortlist import bundle_shortlist
from edgeformer_runtime.source import Source, encode_sources

TURN_SECONDS = 0.01
"""A turn repeats short calls until this many seconds have passed: the first one finds the caches full of what another
system has left there."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """The peers to compare with."""

    peers: Sequence[str] = ()
    """Names of :data:`~edgeformer_bench.peers.base.PEERS`, ``onnxruntime`` for the same bundles on that engine, or
    ``bergamot``."""
    run: Path | None = None
    """The run that the bundles were exported from, whose weights peers use; for ``bergamot``, the model that the first
    bundle was imported from."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Python interpreters of peers that have an environment of their own; empty for the current one."""


class SystemResult(Result, kw_only=True):
    """One system of a comparison."""

    version: str = ""
    sentences_per_second: float = 0.0
    """Number of sentences divided by the median times of the calls of all turns."""
    identical: int | None = None
    """Number of sentences with the same output as the first bundle's."""


class Comparison(Conditions, kw_only=True):
    """All systems on the same sentences, in one run of alternating rounds."""

    sentences: int
    """Number of sentences per round."""
    rounds: int
    """Number of measured rounds over all sentences."""
    text_to_text: bool
    """Whether systems tokenize texts themselves."""
    reference: str
    """The system that speeds are relative to."""
    systems: list[SystemResult]
    """Bundles first."""


def compare(
    bundles: Sequence[Path],
    texts: Sequence[str],
    options: BenchmarkOptions,
    against: Against,
    *,
    text_to_text: bool = False,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> Comparison:
    """Measure bundles and peers. Every call translates one batch.

    Args:
        bundles: folders of bundles with the same tokenizers.
        texts: sentences; blank ones are skipped.
        options: how to measure.
        against: peers to compare with.
        text_to_text: whether a call translates texts, rather than token ids of texts tokenized beforehand.
        progress: called with ``convert`` or ``bench`` and the fraction done.

    Raises:
        ConfigError: text or run is missing, a bundle is given twice, or the tokenizers of bundles and run differ.
        InputTooLongError: a text has more tokens than the model supports.
        PeerError: a peer does not support the model, or its packages are missing.
    """
    opened = [open_bundle(path) for path in bundles]
    sources = _encode(opened[0], texts)
    _require_same_tokenizers(opened, against)
    beam_size = options.beam_size or opened[0].manifest.generation.beam_size
    threads = options.threads or useful_threads(max(bundle.nbytes for bundle in opened), available_cpus())
    workloads = list(_workloads(sources, beam_size, options.batch_size, text_to_text=text_to_text))
    with TemporaryDirectory() as work:
        names = _names(bundles)
        own = partial(ours, threads=threads, device=options.device, shortlist=options.shortlist)
        contenders = own(names, engine=options.engine)
        if ONNXRUNTIME in against.peers:
            contenders += own(_on_kernels(opened, names, options), engine=ONNXRUNTIME)
        shortlist = bundle_shortlist(opened[0]) if options.shortlist and opened[0].manifest.shortlist else None
        settings = PeerOptions(
            threads=threads,
            device=options.device,
            forms_batches=text_to_text and options.batch_size > 1,
            shortlist=shortlist,
            pythons=against.pythons,
        )
        contenders += _peers(opened[0], against, Path(work), settings, progress)
        progress("bench", 0.0)
        reference = contenders[len(bundles) if against.peers else 0].name
        results = _measure(contenders, workloads, options.repeat, reference, partial(progress, "bench"))
    return Comparison(
        machine=machine_summary(),
        sentences=len(sources),
        beam_size=beam_size,
        batch_size=options.batch_size,
        device=options.device,
        threads=threads,
        rounds=options.repeat,
        text_to_text=text_to_text,
        reference=reference,
        systems=results,
    )


def _measure(
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    rounds: int,
    reference: str,
    progress: Callable[[float], None],
) -> list[SystemResult]:
    """Measure times and outputs of all systems. A peer may fail, which is recorded as its error; a bundle must not."""
    with closing(Contest(contenders)) as contest:
        scores = contest.run(workloads, rounds=rounds, turn_seconds=TURN_SECONDS, progress=progress)
        outputs = [contest.outputs(workload) for workload in workloads]
    sentences = sum(len(workload.sources or workload.texts) for workload in workloads)
    results = SystemResult.of(scores, reference)
    for contender in contenders:
        name = contender.name
        if error := contest.errors.get(name, ""):
            if contender.kind == "bundle":
                raise PeerError(f"`{name}` failed: {error}")
            results[name] = SystemResult(system=name, version=contest.versions.get(name, ""), error=error)
            continue
        result = results[name]
        result.version = contest.versions[name]
        if len(contender.specs) == 1:
            result.variant = ""
        result.sentences_per_second = rounds * sentences / float(scores[name].paired().sum())
        result.identical = sum(
            mine == first
            for output in outputs
            for mine, first in zip(output[name], output[contenders[0].name], strict=True)
        )
    return [results[contender.name] for contender in contenders]


def _workloads(sources: Sequence[Source], beam_size: int, batch_size: int, *, text_to_text: bool) -> Iterator[Workload]:
    """Divide the sources into batches."""
    for start in range(0, len(sources), batch_size):
        batch = sources[start : start + batch_size]
        if text_to_text:
            yield Workload(beam_size=beam_size, texts=[source.text for source in batch])
        else:
            yield Workload(beam_size=beam_size, sources=[source.ids for source in batch])


def _names(bundles: Sequence[Path]) -> dict[str, Path]:
    """Key bundles by folder name, or by path if folder names are not unique."""
    names = [path.name for path in bundles]
    if len({*names}) < len(names):
        names = [str(path) for path in bundles]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Bundle `{repeated[0]}` is given twice; name each bundle once.")
    return dict(zip(names, bundles, strict=True))


def _peers(
    bundle: Bundle, against: Against, work: Path, settings: PeerOptions, progress: Callable[[str, float], None]
) -> list[Contender]:
    """Convert the run for the peers that have formats of their own."""
    contenders: list[Contender] = []
    names = [name for name in against.peers if name != ONNXRUNTIME]
    for done, name in enumerate(names):
        assert against.run is not None
        progress("convert", done / len(names))
        if name == BERGAMOT:
            contenders.append(firefox(bundle, against.run, settings))
        else:
            contenders += peer(name, against.run, work, settings)
    return contenders


def _on_kernels(bundles: Sequence[Bundle], names: Mapping[str, Path], options: BenchmarkOptions) -> dict[str, Path]:
    """Return the bundles that run on the kernels, by name on ONNX Runtime."""
    engines = [chosen_engine(bundle, options.engine, options.device) for bundle in bundles]
    named = zip(names.items(), engines, strict=True)
    found = {f"{name} on ONNX Runtime": path for (name, path), engine in named if engine == "kernels"}
    if not found:
        raise ConfigError("`onnxruntime` is compared with the kernels, and no bundle runs on them.")
    return found


def _encode(bundle: Bundle, texts: Sequence[str]) -> list[Source]:
    """Return all texts that are not blank, with their token ids."""
    manifest = bundle.manifest
    tokenizer = bundle_tokenizer(bundle, manifest.tokenizers.source)
    tokenizer = tokenizer.for_sources(manifest.source_language, manifest.target_language)
    sources = [source for source in encode_sources(tokenizer, texts, manifest.max_source_length) if source.ids]
    if not sources:
        raise ConfigError("There is no sentence to translate; give --source a file with text.")
    return sources


def _require_same_tokenizers(bundles: Sequence[Bundle], against: Against) -> None:
    """Make sure that token ids have the same meaning in all systems."""

    def hashes(bundle: Bundle) -> tuple[str, str]:
        files, names = bundle.manifest.files, bundle.manifest.tokenizers
        return files[names.source].sha256, files[names.target].sha256

    first = bundles[0]
    for bundle in bundles[1:]:
        if hashes(bundle) != hashes(first):
            raise ConfigError(f"Bundles `{first.path}` and `{bundle.path}` have different tokenizers.")
    others = {*against.peers} - {ONNXRUNTIME}
    if others and against.run is None:
        model = (
            "model of Firefox that the bundle was imported"
            if others == {BERGAMOT}
            else "run that the bundle was exported"
        )
        raise ConfigError(f"Peers need the weights; give the {model} from with --checkpoint.")
    if against.run is None or others <= {BERGAMOT}:
        return
    from edgeformer.run.folder import Run

    run = Run.open(against.run)
    if tuple(map(file_sha256, (run.source_tokenizer_path, run.target_tokenizer_path))) != hashes(first):
        raise ConfigError(f"Bundle `{first.path}` was not exported from run `{against.run}`: their tokenizers differ.")
