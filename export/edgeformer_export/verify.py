"""Compares a bundle with the run it was exported from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgeformer.data.text import read_lines
from edgeformer.errors import CheckpointError
from edgeformer.train.run import Run
from edgeformer_export.parity import ParityReport, compare
from edgeformer_runtime.options import DecodeOptions
from edgeformer_runtime.translator import Translator


def verify_against_run(
    translator: Translator, run: Run, source: Path | None, beams: Sequence[int], progress: Callable[[float], None]
) -> ParityReport:
    """Compare logits and output of a bundle with the torch model of a run.

    Args:
        translator: the opened bundle.
        run: the run folder.
        source: text file with a sentence per line; the run's sample if none. Lines of white space are left out.
        beams: beam sizes; greedy and the bundle's default if none.
        progress: called with the fraction done, 0 … 1.

    Raises:
        CheckpointError: the run's tokenizers or sizes are not those of the bundle.
        InputTooLongError: a line has more tokens than the model takes.
    """
    manifest, model = translator.bundle.manifest, run.load_model()
    problems = [
        f"`{name}` is {found} in the run and {expected} in the bundle"
        for name, found, expected in (
            ("source_vocab_size", model.source_vocab_size, manifest.source_vocab_size),
            ("target_vocab_size", model.target_vocab_size, manifest.target_vocab_size),
            ("state table", model.state_table(), manifest.state),
        )
        if found != expected
    ]
    for ours, theirs in {
        run.source_tokenizer_path.name: manifest.tokenizers.source,
        run.target_tokenizer_path.name: manifest.tokenizers.target,
    }.items():
        if (run.path / ours).read_bytes() != translator.bundle.file(theirs).read_bytes():
            problems.append(f"tokenizer `{theirs}` differs from the run's `{ours}`")
    if problems:
        raise CheckpointError(f"Run `{run.path}` is not the model of this bundle: " + "; ".join(problems) + ".")
    texts = [source for source, _ in run.sample] if source is None else read_lines(source)
    eos = translator.session.special.eos
    sources = [
        [*ids, eos] for ids in translator.source_tokenizer.encode_batch([text for text in texts if text.strip()])
    ]
    sizes = sorted(set(beams)) or sorted({1, translator.options().beam_size})
    options = [DecodeOptions(beam_size=size, length_penalty=translator.options().length_penalty) for size in sizes]
    precision = min(manifest.precision.values(), key=["int8", "fp32"].index)
    return compare(model, translator.session, sources, options, precision, progress)
