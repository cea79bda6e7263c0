"""Compares a bundle with the run it was exported from, and finds the first part where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from edgeformer.data.text import read_lines
from edgeformer.errors import CheckpointError, DataError
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer.run.folder import Run
from edgeformer_export.parity.comparison import compare
from edgeformer_export.parity.locate import ForcedSentence, locate
from edgeformer_export.parity.report import ParityReport
from edgeformer_export.sample import sample_pairs
from edgeformer_export.tracing.state import bundle_state
from edgeformer_runtime.check.checkpoint import CheckpointResult, Location
from edgeformer_runtime.precision import PRECISIONS, lowest
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator


def verify_against_run(
    translator: Translator,
    checkpoint: Path,
    source: Path | None,
    beams: Sequence[int],
    progress: Callable[[float], None],
    *,
    damaged: bool = False,
) -> CheckpointResult:
    """Compare logits and output of a bundle with those of a run's PyTorch model.

    Args:
        translator: the opened bundle.
        checkpoint: the model's run folder.
        source: text file with one sentence per line; blank lines are skipped. ``None`` uses the run's sample.
        beams: beam sizes to compare; if empty, greedy search and the bundle's default beam size.
        progress: called with the completed fraction, from 0 to 1.
        damaged: search for the first differing part even if logits and output are within tolerance.

    Raises:
        CheckpointError: the run's tokenizers or sizes differ from those of the bundle.
        DataError: the file cannot be read, or contains no sentence.
        InputTooLongError: a line has more tokens than the model accepts.
    """
    run = Run.open(checkpoint)
    manifest, model = translator.bundle.manifest, run.load_model()
    _require_same_model(run, model, translator)
    if source is None:
        sources = [pair.source for pair in sample_pairs(run, model)]
    else:
        sources = [list(line.ids) for line in translator.encode(read_lines(source)) if line.ids]
        if not sources:
            raise DataError(f"`{source}` contains no sentence to compare on.")
    defaults = translator.defaults
    sizes = sorted(set(beams)) or sorted({1, defaults.beam_size})
    options = [DecodeOptions(beam_size=size, length_penalty=defaults.length_penalty) for size in sizes]
    parity = compare(
        model,
        translator.session,
        sources,
        options,
        lowest(manifest.precision.values()),
        progress,
    )
    first, problems = None, list(parity.problems)
    if problems or damaged:
        sentence = _sentence(parity)
        first = _first_difference(model, translator, sources[sentence])
        verdict = "no tensor differs by more than at export" if first is None else f"first difference is in {first}"
        problems.append(f"against torch, in sentence {sentence + 1}, {verdict}")
    return CheckpointResult(
        parity=msgspec.to_builtins(parity),
        facts=tuple(parity.facts),
        warnings=tuple(parity.warnings),
        first=first,
        problems=tuple(problems),
    )


def _require_same_model(run: Run, model: EncoderDecoder, translator: Translator) -> None:
    """Make sure that a bundle could have been exported from a run.

    Raises:
        CheckpointError: tokenizers, vocabularies or states differ; lists all differences.
    """
    manifest = translator.bundle.manifest
    for_cuda = PRECISIONS[lowest(manifest.precision.values())].optimized_for == "cuda"
    problems = [
        f"its {name} differs from the bundle's"
        for name, actual, expected in (
            ("source vocabulary", model.source_vocab_size, manifest.source_vocab_size),
            ("target vocabulary", model.target_vocab_size, manifest.target_vocab_size),
            ("state table", bundle_state(model, manifest.target, for_cuda=for_cuda), manifest.state),
            ("source tokenizer", run.source_tokenizer_path.read_bytes(), _tokenizer_bytes(translator, "source")),
            ("target tokenizer", run.target_tokenizer_path.read_bytes(), _tokenizer_bytes(translator, "target")),
        )
        if actual != expected
    ]
    if problems:
        raise CheckpointError(f"Run `{run.path}` is not the model of this bundle: " + "; ".join(problems) + ".")


def _sentence(parity: ParityReport) -> int:
    """Choose the sentence to examine: the first whose output should match but does not, or else the one whose logits
    differ most."""
    different = [entry.first.sentence for entry in parity.tokens if entry.first is not None]
    must_match = PRECISIONS[parity.precision].tolerances.identical_output
    return min(different) if different and must_match else parity.logits.worst_sentence


def _first_difference(model: EncoderDecoder, translator: Translator, source: Sequence[int]) -> Location | None:
    special = translator.session.special
    ((best,),) = decode(TorchSession(model, special), [source], DecodeOptions(beam_size=1, return_scores=False))
    sentence = ForcedSentence(tuple(source), (*special.start, *best.ids)[: model.max_target_length])
    return locate(model, translator.bundle, translator.session.device, sentence)


def _tokenizer_bytes(translator: Translator, side: str) -> bytes:
    return translator.bundle.file(getattr(translator.bundle.manifest.tokenizers, side)).read_bytes()
