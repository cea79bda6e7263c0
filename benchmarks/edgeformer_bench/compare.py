"""Compares bundles with each other and with peers: the same sentences, in alternating rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from edgeformer.errors import ConfigError
from edgeformer_bench.latency import BenchmarkOptions, Conditions
from edgeformer_bench.peers.base import BERGAMOT, ONNXRUNTIME, Contender, PeerError
from edgeformer_bench.peers.systems import PeerOptions, firefox, ours, peer
from edgeformer_bench.rounds import Contest, SystemResult, SystemTimes, Workload, speeds
from edgeformer_bench.timer import Timing
from edgeformer_runtime.bundle.open import Bundle, file_sha256, open_bundle
from edgeformer_runtime.bundle.tokenizers import bundle_tokenizer
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.engines.base import chosen_engine
from edgeformer_runtime.engines.cpus import available_cpus, useful_threads
from edgeformer_runtime.search.shortlist import bundle_shortlist
from edgeformer_runtime.source import encode_sources

Sentences = Sequence[str] | Sequence[Sequence[int]]
"""Texts, or the token ids of each."""
TURN_SECONDS = 0.01
"""A turn repeats short calls until this many seconds have passed: the first one finds the caches full of what another
system has left there."""
Progress = Callable[[str, float], None]
"""Called with ``convert`` or ``bench`` and the fraction done."""


@dataclass(frozen=True, kw_only=True)
class PeerSelection:
    """The peers to compare with."""

    peers: Sequence[str] = ()
    """Names of :data:`~edgeformer_bench.peers.base.PEERS`, ``onnxruntime`` for the same bundles on that engine, or
    ``bergamot``."""
    run: Path | None = None
    """The run that the bundles were exported from, whose weights peers use; for ``bergamot``, the model that the first
    bundle was imported from."""
    work: Path | None = None
    """Folder for models in the peers' formats; existing ones are reused. ``None`` for a temporary one."""


class Comparison(Conditions, kw_only=True):
    """All systems on the same sentences, in one run of alternating rounds."""

    sentences: int
    """Number of sentences per round."""
    rounds: int
    """Number of measured rounds over all sentences."""
    text_to_text: bool
    """Whether systems tokenize texts themselves."""
    lengths: tuple[int, int] | None
    """Tokens of each source and of each output, if they are given."""
    reference: str
    """The system that speeds are relative to."""
    systems: list[SystemResult]
    """Bundles first."""


def compare(
    bundles: Sequence[Path],
    sentences: Sentences,
    options: BenchmarkOptions,
    against: PeerSelection,
    *,
    length: int | None = None,
    progress: Progress = lambda stage, fraction: None,
) -> Comparison:
    """Measure bundles and peers. Every call translates one batch; a peer that fails does not end the comparison.

    Args:
        bundles: folders of bundles with the same tokenizers.
        sentences: what to translate, as :func:`encoded` returns it.
        options: how to measure.
        against: peers to compare with.
        length: decode exactly this many tokens of each sentence; ``None`` decodes up to the end token.
        progress: called meanwhile.

    Raises:
        ConfigError: the run is missing, a bundle is given twice, or the tokenizers of bundles and run differ.
        PeerError: no peer supports the model, or has its packages; or a bundle failed.
    """
    opened = [open_bundle(path) for path in bundles]
    _require_same_tokenizers(opened, against)
    options = replace(
        options,
        beam_size=options.beam_size or opened[0].manifest.generation.beam_size,
        threads=options.threads or useful_threads(max(bundle.nbytes for bundle in opened), available_cpus()),
    )
    workloads = list(_workloads(sentences, options, length))
    text_to_text = bool(workloads[0].texts)
    contenders = _ours(bundles, opened, options, against)
    with TemporaryDirectory() as folder:
        work = against.work or Path(folder)
        peers, missing = _peers(opened[0], against, work, options, text_to_text=text_to_text, progress=progress)
        contenders += peers
        reference = contenders[len(bundles) if len(contenders) > len(bundles) else 0].name
        report = partial(progress, "bench")
        report(0.0)
        with closing(Contest(contenders)) as contest:
            scores = contest.run(workloads, rounds=options.repeat, turn_seconds=TURN_SECONDS, progress=report)
            results = _results(contest, contenders, workloads, scores, reference)
    return Comparison(
        machine=machine_summary(),
        sentences=len(sentences),
        beam_size=workloads[0].beam_size,
        batch_size=options.batch_size,
        device=options.device,
        threads=options.threads,
        rounds=options.repeat,
        text_to_text=text_to_text,
        lengths=None if length is None else (len(sentences[0]), length),
        reference=reference,
        systems=results + [SystemResult(system=name, error=error) for name, error in missing.items()],
    )


def encoded(bundle: Path, texts: Sequence[str], *, text_to_text: bool = False) -> Sentences:
    """Prepare texts for :func:`compare`: their token ids, or the texts themselves if systems are to tokenize them.

    Blank ones are skipped.

    Raises:
        ConfigError: there is no text to translate.
        InputTooLongError: a text has more tokens than the model supports.
    """
    opened = open_bundle(bundle)
    manifest = opened.manifest
    tokenizer = bundle_tokenizer(opened, manifest.tokenizers.source)
    tokenizer = tokenizer.for_sources(manifest.source_language, manifest.target_language)
    sources = [source for source in encode_sources(tokenizer, texts, manifest.max_source_length) if source.ids]
    if not sources:
        raise ConfigError("There is no sentence to translate; give --source a file with text.")
    return [source.text for source in sources] if text_to_text else [source.ids for source in sources]


def _workloads(sentences: Sentences, options: BenchmarkOptions, length: int | None) -> Iterator[Workload]:
    """Divide the sentences into batches."""
    for start in range(0, len(sentences), options.batch_size):
        batch = sentences[start : start + options.batch_size]
        texts = [sentence for sentence in batch if isinstance(sentence, str)]
        sources = [sentence for sentence in batch if not isinstance(sentence, str)]
        yield Workload(beam_size=options.beam_size or 1, sources=sources, texts=texts, length=length)


def _results(
    contest: Contest,
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    scores: Mapping[str, SystemTimes],
    reference: str,
) -> list[SystemResult]:
    """Collect figures and outputs of all systems. A peer may fail, which its result then says; a bundle must not."""
    outputs = [contest.outputs(workload) for workload in workloads]
    sentences = sum(len(workload.sources or workload.texts) for workload in workloads)
    results, speed = [], speeds(scores, reference)
    for contender in contenders:
        name = contender.name
        result = SystemResult(system=name, version=contest.versions.get(name, ""), error=contest.errors.get(name, ""))
        results.append(result)
        if result.error and contender.kind == "bundle":
            raise PeerError(f"`{name}` failed: {result.error}")
        if result.error:
            continue
        score = scores[name]
        result.variant = score.variant if len(contender.specs) > 1 else ""
        result.timing, result.speed = Timing.of(score.seconds), speed.get(name)
        result.sentences_per_second = len(score.turns[0]) * sentences / float(score.paired().sum())
        result.identical = sum(
            mine == first
            for output in outputs
            for mine, first in zip(output[name], output[contenders[0].name], strict=True)
        )
        result.bytes = contender.specs[0].model_bytes
        result.start_seconds, result.peak_mb = contest.start_seconds[name], contest.peak_mb(name)
    return results


def _ours(
    bundles: Sequence[Path], opened: Sequence[Bundle], options: BenchmarkOptions, against: PeerSelection
) -> list[Contender]:
    """Return the bundles, and those on ONNX Runtime that the kernels are compared with."""
    names = _names(bundles)
    own = partial(ours, threads=options.threads, device=options.device, shortlist=options.shortlist)
    contenders = own(names, engine=options.engine)
    if ONNXRUNTIME in against.peers:
        contenders += own(_on_kernels(opened, names, options), engine=ONNXRUNTIME)
    return contenders


def _names(bundles: Sequence[Path]) -> dict[str, Path]:
    """Key bundles by folder name, or by path if folder names are not unique."""
    names = [path.name for path in bundles]
    if len({*names}) < len(names):
        names = [str(path) for path in bundles]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Bundle `{repeated[0]}` is given twice; name each bundle once.")
    return dict(zip(names, bundles, strict=True))


def _peers(
    bundle: Bundle,
    against: PeerSelection,
    work: Path,
    options: BenchmarkOptions,
    *,
    text_to_text: bool,
    progress: Progress,
) -> tuple[list[Contender], dict[str, str]]:
    """Convert the run for the peers that have formats of their own. Also returns why others cannot take part; if none
    can, that is an error."""
    lists = options.shortlist and bundle.manifest.has_shortlist
    settings = PeerOptions(
        threads=options.threads,
        device=options.device,
        forms_batches=text_to_text and options.batch_size > 1,
        shortlist=bundle_shortlist(bundle) if lists else None,
    )
    contenders, errors = list[Contender](), dict[str, PeerError]()
    names = [name for name in against.peers if name != ONNXRUNTIME]
    for done, name in enumerate(names):
        assert against.run is not None
        progress("convert", done / len(names))
        try:
            if name == BERGAMOT:
                contenders.append(firefox(bundle, against.run, settings))
            else:
                contenders += peer(name, against.run, work, settings)
        except PeerError as error:
            errors[name] = error
    if errors and not contenders:
        raise next(iter(errors.values()))
    return contenders, {name: str(error) for name, error in errors.items()}


def _on_kernels(bundles: Sequence[Bundle], names: Mapping[str, Path], options: BenchmarkOptions) -> dict[str, Path]:
    """Return the bundles that run on the kernels, by name on ONNX Runtime."""
    engines = [chosen_engine(bundle, options.engine, options.device) for bundle in bundles]
    named = zip(names.items(), engines, strict=True)
    found = {f"{name} on ONNX Runtime": path for (name, path), engine in named if engine == "kernels"}
    if not found:
        raise ConfigError("`onnxruntime` is compared with the kernels, and no bundle runs on them.")
    return found


def _require_same_tokenizers(bundles: Sequence[Bundle], against: PeerSelection) -> None:
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
