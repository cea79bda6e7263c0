"""Compares a bundle with the run it was exported from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgeformer.data.text import read_lines
from edgeformer.errors import CheckpointError, DataError
from edgeformer.train.run import Run
from edgeformer_export.export import sample_pairs
from edgeformer_export.parity import ParityReport, compare
from edgeformer_runtime.errors import InputTooLongError
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
        DataError: the file cannot be read, or holds no sentence.
        InputTooLongError: a line has more tokens than the model takes.
    """
    manifest, model = translator.bundle.manifest, run.load_model()
    problems = [
        f"its {name} differs from the bundle's"
        for name, found, expected in (
            ("source vocabulary", model.source_vocab_size, manifest.source_vocab_size),
            ("target vocabulary", model.target_vocab_size, manifest.target_vocab_size),
            ("state table", model.state_table(), manifest.state),
            ("source tokenizer", _content(run.source_tokenizer_path), _content(_file(translator, "source"))),
            ("target tokenizer", _content(run.target_tokenizer_path), _content(_file(translator, "target"))),
        )
        if found != expected
    ]
    if problems:
        raise CheckpointError(f"Run `{run.path}` is not the model of this bundle: " + "; ".join(problems) + ".")
    special = translator.session.special
    if source is None:
        sources = [pair.source for pair in sample_pairs(run, model, special)]
    else:
        sources = _encoded(translator, read_lines(source), source)
    defaults = translator.options()
    sizes = sorted(set(beams)) or sorted({1, defaults.beam_size})
    options = [DecodeOptions(beam_size=size, length_penalty=defaults.length_penalty) for size in sizes]
    precision = min(manifest.precision.values(), key=["int8", "fp32"].index)
    return compare(model, translator.session, sources, options, precision, progress)


def _encoded(translator: Translator, texts: Sequence[str], file: Path) -> list[list[int]]:
    """Token ids of all lines that are not blank.

    Raises:
        DataError: there are none.
        InputTooLongError: a line has more tokens than the model takes; its index is that of the line.
    """
    session = translator.session
    filled = [index for index, text in enumerate(texts) if text.strip()]
    if not filled:
        raise DataError(f"`{file}` holds no sentence to compare on.")
    encoded = translator.source_tokenizer.encode_batch([texts[index] for index in filled])
    sources = [[*ids, session.special.eos] for ids in encoded]
    for index, ids in zip(filled, sources, strict=True):
        if len(ids) > session.max_source_length:
            raise InputTooLongError(index, len(ids), session.max_source_length)
    return sources


def _file(translator: Translator, side: str) -> Path:
    return translator.bundle.file(getattr(translator.bundle.manifest.tokenizers, side))


def _content(path: Path) -> bytes:
    return path.read_bytes()
