"""Sequence-level knowledge distillation (Kim & Rush 2016): a teacher translates the source side of a training corpus,
and a student learns from these translations instead of the references.

The validation and test sets keep their references.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import Recipe
from edgeformer.data.corpora import REPORT_FILE, CorpusReport, load_corpus, read_report
from edgeformer.data.prepare import ensure_writable, write_parts, write_report
from edgeformer.data.text import Pair, written_lines
from edgeformer.distill.folder import (
    BLOCKS,
    ORIGINAL,
    PROGRESS_FILE,
    Block,
    Job,
    Progress,
    refuse_other,
    resumed,
    suffixes,
    tidy,
    writing,
)
from edgeformer.errors import ConfigError, DataError
from edgeformer.quality.scores import sentence_bleu
from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.distributed.block_folder import BlockFolder
from edgeformer_runtime.distributed.ray_workers import RayWorkers
from edgeformer_runtime.files import atomic_file, locked_folder, staged_folder, write_atomically
from edgeformer_runtime.translator import Translator

BLOCK = 1024
"""Pairs that are translated together; they are batched by length."""

Report = Callable[[int, int], None]
"""Called with the number of sentences done and their total."""


def distill(
    teacher: Translator,
    out: Path,
    recipe: Recipe | None,
    data_dir: Path | None = None,
    *,
    resume: bool = False,
    max_batch_tokens: int = 4096,
    workers: RayWorkers | None = None,
    report: Report = lambda done, total: None,
    **settings: Any,
) -> CorpusReport:
    """Write a corpus whose training targets are a teacher's translations, for ``data.corpus``.

    A pair keeps its reference if the teacher does not finish a translation of it. Once the corpus is read, memory holds
    one block at a time.

    Args:
        teacher: an opened bundle.
        out: the folder; must be missing or empty unless ``resume`` is set.
        recipe: names the corpus; optional when resuming.
        data_dir: folder to look for the corpus in.
        resume: continue the distillation in ``out``.
        max_batch_tokens: maximum batch size in tokens.
        workers: processes that translate in place of ``teacher``, with the same bundle.
        report: called after each block.
        settings: fields of :class:`Job`; the rest are the teacher's defaults or, when resuming, the former ones.

    Raises:
        ConfigError: ``out`` is not empty, holds nothing to resume, was started with another teacher or other settings,
            or is being used by another process.
        DataError: the corpus cannot be read, or the folder cannot be written.
        OptionError: a setting is out of its range.
        DeviceError: the cluster of the workers cannot be reached, or was lost.
    """
    settings = {"teacher_sha256": file_sha256(teacher.bundle.path / MANIFEST_FILE), **settings}
    if resume and (out / REPORT_FILE).is_file():
        return _complete(out, settings)
    progress = None if resume else _begin(teacher, out, recipe, data_dir, settings)
    with locked_folder(out):
        progress = progress or resumed(out, recipe, settings)
        work = partial(_distilled, job=progress.job, max_batch_tokens=max_batch_tokens)
        folder, total = BlockFolder(out / BLOCKS), progress.report.pairs["train"]
        done = folder.done(progress.blocks)
        rest = ((number, pairs) for number, pairs in enumerate(_blocks(out, progress)) if number not in done)
        sentences = sum(min(progress.size, total - number * progress.size) for number in done)
        report(sentences, total)
        with closing(_results(work, rest, teacher, workers)) as results, writing(out):
            for number, block in results:
                folder.write(number, block)
                sentences += min(progress.size, total - number * progress.size)
                report(sentences, total)
        with writing(out):
            return _finish(out, progress, folder)


def _blocks(out: Path, progress: Progress) -> Iterator[list[Pair]]:
    """The original pairs."""
    sources, targets = ((out / f"{ORIGINAL}.{language}").open("rb") for language in suffixes(progress.report))
    with sources, targets:
        lines = zip(sources, targets, strict=True)
        for _ in range(progress.blocks):
            yield [(source.decode()[:-1], target.decode()[:-1]) for source, target in islice(lines, progress.size)]


def _results(
    work: Callable[[Translator, list[Pair]], bytes],
    blocks: Iterator[tuple[int, list[Pair]]],
    teacher: Translator,
    workers: RayWorkers | None,
) -> Generator[tuple[int, bytes]]:
    """Yield the number and the result of each block as it is ready."""
    if workers is None:
        for number, pairs in blocks:
            yield number, work(teacher, pairs)
        return
    with closing(workers.map(work, blocks)) as results:
        yield from results


def _begin(
    teacher: Translator, out: Path, recipe: Recipe | None, data_dir: Path | None, settings: dict[str, Any]
) -> Progress:
    """Write the original corpus, and beside it the settings."""
    if recipe is None:
        raise ConfigError("A recipe is required to start a distillation.")
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"`{out}` is not empty; choose another --out, or continue the work in it with --resume.")
    ensure_writable(out, overwrite=False)
    defaults = teacher.defaults
    job = Job(
        teacher=teacher.bundle.path.resolve().name,
        **{"beam_size": defaults.beam_size, "length_penalty": defaults.length_penalty, **settings},
    )
    teacher.options(beam_size=job.beam_size, length_penalty=job.length_penalty, n_best=job.n_best).verify()
    if job.closest and (job.n_best > 1 or job.beam_size == 1):
        raise ConfigError(
            "`closest` picks one of several hypotheses: it needs `beam_size` of at least 2 and `n_best` of 1."
        )
    _chooser(job)
    corpus = load_corpus(recipe.data, data_dir)
    for side in ("source", "target"):
        language = getattr(corpus, f"{side}_language") or getattr(recipe, f"{side}_language")
        expected = getattr(teacher.bundle.manifest, f"{side}_language")
        if language and expected and language != expected:
            raise ConfigError(
                f"The teacher's {side} language is `{expected}`, but the corpus's is `{language}`; choose another "
                "corpus."
            )
    with staged_folder(out) as folder:
        progress = Progress(job=job, data=recipe.data, report=write_parts(corpus, folder), size=BLOCK)
        for language in suffixes(progress.report):
            (folder / f"train.{language}").rename(folder / f"{ORIGINAL}.{language}")
        (folder / BLOCKS).mkdir()
        write_atomically(folder / PROGRESS_FILE, msgspec.json.encode(progress))
    return progress


def _complete(out: Path, settings: dict[str, Any]) -> CorpusReport:
    """The report of a distillation that is complete already."""
    report = read_report(out)
    if not report.provenance.distilled:
        raise ConfigError(f"`{out}` contains the original corpus, not a teacher's output; choose another --out.")
    refuse_other(out, report.provenance.distilled, settings)
    tidy(out, report)
    return report


def _finish(out: Path, progress: Progress, folder: BlockFolder) -> CorpusReport:
    """Write the training part, and the report, which makes the corpus complete."""
    report = progress.report
    counts = {"sentences": report.pairs["train"], "pairs": 0, "too_long": 0, "unfinished": 0}
    with ExitStack() as stack:
        files = [stack.enter_context(atomic_file(out / name)) for name in report.files["train"]]
        for number in range(progress.blocks):
            try:
                block = msgspec.json.decode(folder.read(number), type=Block)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(f"Block {number} in `{folder.path}` is damaged: {error}. Remove it.") from None
            for side, file in enumerate(files):
                file.write(written_lines(pair[side] for pair in block.pairs))
            counts["pairs"] += len(block.pairs)
            counts["too_long"] += block.too_long
            counts["unfinished"] += block.unfinished
    distilled = {**msgspec.to_builtins(progress.job), **counts, "corpus_sha256": report.provenance.sha256}
    report = msgspec.structs.replace(
        report,
        provenance=msgspec.structs.replace(report.provenance, distilled=distilled),
        pairs={**report.pairs, "train": counts["pairs"]},
        files={**report.files, "train": {name: file_sha256(out / name) for name in report.files["train"]}},
    )
    write_report(out, report)
    tidy(out, report)
    return report


Chooser = Callable[[list[str], str], list[str]]
"""Picks the hypotheses to keep, of those given best first, with the reference as second argument."""


def _chooser(job: Job) -> Chooser:
    if not job.closest:
        return lambda texts, original: texts[: job.n_best]
    bleu = sentence_bleu(job.closest)
    return lambda texts, original: [
        max(texts, key=lambda text: bleu(text, original))
    ]  # ties go to the better hypothesis


def _distilled(teacher: Translator, pairs: Sequence[Pair], *, job: Job, max_batch_tokens: int) -> bytes:
    """Translate the sources of a block, except those with more tokens than the teacher accepts; return a
    :class:`~edgeformer.distill.folder.Block` as JSON."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    excluded = teacher.too_long(sources)
    sources = [source for index, source in enumerate(sources) if index not in excluded]
    translated = teacher.translate(
        sources,
        return_scores=False,
        n_best=job.beam_size if job.closest else job.n_best,
        beam_size=job.beam_size,
        length_penalty=job.length_penalty,
        max_batch_tokens=max_batch_tokens,
    )
    translations, choose = dict(zip(sources, translated, strict=True)), _chooser(job)
    chosen: list[Pair] = []
    long = unfinished = 0
    for source, target in pairs:
        translation = translations.get(source)
        hypotheses = translation.hypotheses if translation else ()
        texts = list(dict.fromkeys(hypothesis.text for hypothesis in hypotheses if hypothesis.finished))
        texts = [text for text in texts if text.strip()]
        long += translation is None
        unfinished += translation is not None and not texts
        chosen += [(source, text) for text in (choose(texts, target) if texts else [target])]
    return msgspec.json.encode(Block(pairs=chosen, too_long=long, unfinished=unfinished))
