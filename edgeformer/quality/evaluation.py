"""Quality and speed of a bundle or a torch model on a test set: both run through the same decode loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgeformer.data.text import read_lines
from edgeformer.errors import ConfigError, DataError
from edgeformer.quality.scores import Scores, metrics, score
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.decoding.loop import Counters
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import AnySession
from edgeformer_runtime.errors import InputError
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translator import EMPTY, Translation, Translator, translate_texts

CHUNK = 256
"""Texts translated between two reports of progress; sorted by length over the whole file."""


@dataclass(frozen=True)
class System:
    """Something that translates: a bundle or a run."""

    kind: str
    """``bundle fp32``, ``bundle int8`` or ``torch``."""
    session: AnySession
    """Its model."""
    source_tokenizer: Tokenizer
    """Tokenizer of the source side."""
    target_tokenizer: Tokenizer
    """Tokenizer of the target side."""
    options: DecodeOptions
    """Its decoding defaults."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores, output and times."""

    scores: Scores
    """Quality."""
    translations: list[str]
    """Output, in the order of the source."""
    beam_size: int
    """Hypotheses kept per sentence."""
    sentences_per_second: float
    """From text to text."""
    counters: Counters
    """Where the time went."""
    cut: int
    """Sources that were cut."""


def open_system(path: Path, *, device: str = "cpu", threads: int = 0) -> System:
    """Open a bundle, or a run folder with torch.

    Raises:
        BundleError, CheckpointError: neither can be read there.
        ConfigError: nothing is there.
        DeviceError: the device is not to be had.
    """
    if not path.exists():
        raise ConfigError(f"`{path}` does not exist; give the folder of a run or of a bundle.")
    if (path / MANIFEST_FILE).exists() or not path.is_dir():
        translator = Translator(path, device=device, threads=threads)
        precision = "+".join(sorted(set(translator.bundle.manifest.precision.values())))
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        return System(f"bundle {precision}", translator.session, *tokenizers, translator.options())

    import torch

    from edgeformer.model.session import TorchSession
    from edgeformer.train.run import Run
    from edgeformer_runtime.errors import DeviceError

    if device not in {"cpu", "cuda"} or (device == "cuda" and not torch.cuda.is_available()):
        raise DeviceError(
            f"torch cannot use device `{device}` on this machine; use cpu or, with a CUDA build of torch, cuda."
        )
    if threads:
        torch.set_num_threads(threads)
    run = Run.open(path)
    session = TorchSession(run.load_model().to(device))
    generation = run.info.generation
    options = DecodeOptions(beam_size=generation.beam_size, length_penalty=generation.length_penalty)
    return System("torch", session, run.source_tokenizer, run.target_tokenizer, options)


def evaluate_text(
    system: System,
    source: Path,
    reference: Path,
    *,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    tokenize: str = "13a",
    truncate: bool = False,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Evaluation:
    """Translate a file and score it.

    Args:
        system: what translates.
        source: text, a sentence per line.
        reference: its translation, line by line.
        beam_size: hypotheses kept; the system's default if none.
        length_penalty: the system's default if none.
        tokenize: sacreBLEU's tokenizer.
        truncate: cut lines that have more tokens than the model takes.
        progress: called with the fraction done, 0 … 1.

    Raises:
        DataError: a file cannot be read, or the numbers of lines differ.
        InputError: a line has more tokens than the model takes and may not be cut, or is not valid Unicode.
        ConfigError: the tokenizer of sacreBLEU is unknown.
    """
    texts, references = aligned_lines(source, reference)
    metrics(tokenize)
    options = system.options
    if beam_size is not None:
        options = replace(options, beam_size=beam_size)
    if length_penalty is not None:
        options = replace(options, length_penalty=length_penalty)
    counters, begin = Counters(), time.perf_counter()
    found = translate_all(system, texts, options, counters, progress, truncate=truncate)
    seconds = time.perf_counter() - begin
    translations = [translation.text for translation in found]
    return Evaluation(
        scores=score(translations, references, tokenize),
        translations=translations,
        beam_size=options.beam_size,
        sentences_per_second=len(texts) / seconds if seconds else 0.0,
        counters=counters,
        cut=sum(translation.cut > 0 for translation in found),
    )


def aligned_lines(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """Lines of a text and of its translation.

    Raises:
        DataError: a file cannot be read, or the numbers of lines differ.
    """
    texts, references = read_lines(source), read_lines(reference)
    if len(texts) != len(references):
        raise DataError(
            f"`{source}` has {len(texts)} lines, but `{reference}` has {len(references)}; align them line by line."
        )
    return texts, references


def translate_all(
    system: System,
    texts: Sequence[str],
    options: DecodeOptions,
    counters: Counters | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
    *,
    truncate: bool = False,
) -> list[Translation]:
    """Translate texts in their order.

    Args:
        system: what translates.
        texts: sentences.
        options: how to search.
        counters: receives times and counts.
        progress: called with the fraction done, 0 … 1.
        truncate: cut texts that have more tokens than the model takes.

    Raises:
        InputError: a text has more tokens than the model takes and may not be cut, or is not valid Unicode.
    """
    translations = [EMPTY] * len(texts)
    # Similar lengths meet in a batch although progress is shown between chunks.
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    for start in range(0, len(order), CHUNK):
        block = order[start : start + CHUNK]
        try:
            output = translate_texts(
                system.session,
                system.source_tokenizer,
                system.target_tokenizer,
                [texts[index] for index in block],
                options,
                counters,
                truncate=truncate,
            )
        except InputError as error:
            raise error.at(block[error.index]) from None
        for index, translation in zip(block, output, strict=True):
            translations[index] = translation
        progress(min(1.0, (start + CHUNK) / len(order)))
    return translations


def too_long(session: AnySession, tokenizer: Tokenizer, texts: Sequence[str]) -> set[int]:
    """Positions of the texts that have more tokens, end token included, than a model takes."""
    lengths = (len(ids) + 1 for ids in tokenizer.encode_batch(texts))
    return {index for index, length in enumerate(lengths) if length > session.max_source_length}
