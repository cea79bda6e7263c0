"""The command ``translate``: text from arguments, a file or standard input, without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.distributed import (
    Block,
    BlockOutput,
    cluster_options,
    ray_workers,
    translate_file,
    translated_lines,
    translated_text_lines,
    uses_ray,
)
from edgeformer_runtime.cli.output import atomic_text, console, print_warnings, refuse_input
from edgeformer_runtime.cli.terminal import visible
from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.cli.translating.chosen_input import (
    PACKED,
    Chosen,
    check_options,
    check_output,
    chosen_input,
    whole_texts,
)
from edgeformer_runtime.cli.translating.line_output import json_line, plain_lines, truncation_note
from edgeformer_runtime.cli.translating.whole_texts import (
    TextWork,
    text_decoding,
    text_translator,
)
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.files import atomic_file

if TYPE_CHECKING:
    from edgeformer_runtime.attention import Attention
    from edgeformer_runtime.decoding.options import DecodeChanges, DecodeOptions
    from edgeformer_runtime.distributed.ray_workers import Work
    from edgeformer_runtime.translation import Translation
    from edgeformer_runtime.translator import Translator


@click.command()
@options.bundle
@click.argument("text", nargs=-1)
@click.option(
    "--input",
    "input_file",
    type=click.Path(path_type=Path),
    help="A document, or UTF-8 text, plain or gzip; - is standard input.",
)
@click.option(
    "-o", "--output", "output_file", type=click.Path(path_type=Path), help="Output file, written only on success."
)
@whole_texts
@options.search
@click.option("--target-prefix", metavar="TEXT", help="Begin every translation with this text.")
@options.group(
    "engine",
    truncate=options.truncate,
    device=options.device,
    threads=options.worker_threads,
    shortlist=options.shortlist,
    source_language=click.option(
        "--source-language", metavar="CODE", help="Language to translate from, for models with several."
    ),
    target_language=click.option(
        "--target-language", metavar="CODE", help="Language to translate to, for models with several."
    ),
    workers=options.workers,
)
@cluster_options
@options.trusted_keys
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object per line: the source, its translation, and its sentences with confidence and words; with "
    "--lines, the source, and text, tokens, ids and score of each hypothesis.",
)
@click.option(
    "--attention",
    is_flag=True,
    help="With --lines and --json, add which source tokens each target token attends to: the weights of every line.",
)
def translate(
    bundle: Path,
    text: tuple[str, ...],
    input_file: Path | None,
    output_file: Path | None,
    whole: dict[str, Any],
    search: DecodeChanges,
    target_prefix: str | None,
    engine: dict[str, Any],
    cluster: dict[str, str],
    trusted_keys: tuple[Path, ...],
    as_json: bool,
    attention: bool,
) -> None:
    """Translate text with a bundle.

    Reads TEXT, the lines of --input, or standard input, and translates it with BUNDLE. Every line becomes one
    line, with the white space around its sentences. Lines from a pipe are translated as they arrive.

    If TEXT or --input is the name of a document, the document is translated: .docx, .html, .md, .odt, .po, .srt, .txt
    or .vtt.

    With --lines, every line is one sentence. With --lines and --nbest N, every line gives up to N lines with
    score, tab and text, followed by a blank line.
    """
    if text and input_file is not None:
        raise click.UsageError("Give TEXT or --input, not both.")
    single = ("--target-prefix", target_prefix is not None), ("--attention", attention)
    check_options(whole, search, *single)
    chosen = chosen_input(text, input_file, whole)
    check_output(chosen, output_file, whole, as_json=as_json)
    if output_file is not None:
        refuse_input(output_file, chosen.file)
    if uses_ray(cluster):
        if chosen.file is None or str(chosen.file) == "-" or output_file is None:
            raise click.UsageError("--engine ray needs --input FILE and --output FILE.")
        if attention or "format" in whole or chosen.kind:
            raise click.UsageError("--attention, --format and documents cannot be combined with --engine ray.")
        translator = _opened(bundle, trusted_keys, {**engine, "workers": 1, "threads": 1})
        work, settings = _work(translator, whole, search, target_prefix, as_json=as_json)
        settings |= {key: value for key, value in engine.items() if key not in ("workers", "threads")}
        workers = ray_workers(translator, engine, cluster)
        translate_file(workers, work, chosen.file, output_file, settings)
        return
    if attention and not as_json:
        raise click.UsageError("--attention needs --json.")
    engine["engine"] = cluster["engine"]
    opened = partial(_opened, bundle, trusted_keys, engine, many=bool(chosen.file))
    if whole["lines"]:
        _translate_lines(opened, text, input_file, output_file, search, target_prefix, attention, as_json=as_json)
    else:
        _translate_texts(opened(), chosen, output_file, whole, search, as_json=as_json)


def _opened(bundle: Path, trusted_keys: tuple[Path, ...], engine: dict[str, Any], *, many: bool = False) -> Translator:
    """Open a bundle; ``many`` if it is for many sentences."""
    from edgeformer_runtime.engine.cpus import divide_for_many
    from edgeformer_runtime.translator import Translator

    if many:
        divided = divide_for_many(engine["device"], engine["threads"], engine["workers"])
        engine |= zip(("threads", "workers"), divided, strict=True)
    return Translator.open(bundle, trusted_keys=trusted_keys or None, **engine)


def _work(
    translator: Translator, whole: dict[str, Any], search: DecodeChanges, target_prefix: str | None, *, as_json: bool
) -> tuple[Work[Block, BlockOutput], dict[str, Any]]:
    """What a worker does with lines, and the settings that its output depends on."""
    settings = {**search, "target_prefix": target_prefix, "json": as_json}
    if whole["lines"]:
        decoding = _decoding(translator, search, target_prefix, as_json=as_json)
        work = partial(translated_lines, decoding=decoding, target_prefix=target_prefix, as_json=as_json)
        return work, settings
    texts = text_translator(translator, whole, as_json=as_json)
    decoding = text_decoding(texts, search)
    glossary = texts.glossary.terms if texts.glossary else None
    work = partial(translated_text_lines, text_options=texts.options, decoding=decoding, as_json=as_json)
    return work, {**settings, "split": True, "glossary": glossary}


def _translate_texts(
    translator: Translator,
    chosen: Chosen,
    output_file: Path | None,
    whole: dict[str, Any],
    search: DecodeChanges,
    *,
    as_json: bool,
) -> None:
    """Translate lines of text, or a document."""
    texts = text_translator(translator, whole, as_json=as_json)
    work = TextWork.of(texts, text_decoding(texts, search), as_json=as_json)
    if output_file is not None and chosen.kind in PACKED:
        content = work.document(chosen)
        with atomic_file(output_file) as file:
            file.write(content)
    else:
        written = work.lines(chosen, whole.get("format", "text"), keep_returns=output_file is not None)
        with _writer(output_file) as write:
            for line in (work.document(chosen).decode(),) if chosen.kind else written:
                write(line)
    advice = "; --json tells which" if chosen.kind in ("", ".htm", ".html") and not as_json else ""
    print_warnings(work.doubts.warnings(advice))


def _translate_lines(
    opened: Callable[[], Translator],
    text: tuple[str, ...],
    input_file: Path | None,
    output_file: Path | None,
    search: DecodeChanges,
    target_prefix: str | None,
    attention: bool,
    *,
    as_json: bool,
) -> None:
    """Translate lines of one sentence each."""
    from edgeformer_runtime.attention import attentive
    from edgeformer_runtime.text.results import plausible

    translator = opened()
    decoding = _decoding(translator, search, target_prefix, as_json=as_json)
    if attention:
        attentive(translator.session)  # a bundle without attention is an error before any work
    with line_blocks(text, input_file) as blocks, _writer(output_file) as write:
        attended = _attended(translator, blocks, decoding, target_prefix, with_attention=attention)
        for number, (translation, weights) in enumerate(attended, 1):
            if translation.error is not None:
                raise translation.error
            if decoding.return_alternatives:
                translation = plausible(translation)
            if note := truncation_note(number, translation):
                console(stderr=True).print(note)
            write(json_line(translation, weights) if as_json else plain_lines(translation, decoding.n_best))


def _decoding(
    translator: Translator, search: DecodeChanges, target_prefix: str | None, *, as_json: bool
) -> DecodeOptions:
    """Check all options, even if there is no line to translate."""
    from dataclasses import replace

    from edgeformer_runtime.target import prefix_ids

    search["return_scores"] = as_json or search.get("n_best", 1) > 1
    decoding = translator.options(**search)
    if decoding.n_best > decoding.places and not (decoding.is_sampling or decoding.return_alternatives):
        raise OptionError(f"`--nbest` must be at most `--beam` ({decoding.places}), but is {decoding.n_best}.")
    decoding.verify()
    if decoding.return_token_scores and not as_json:
        raise OptionError("`--token-scores` needs `--json`.")
    prefix_ids(translator.target_tokenizer, target_prefix, 1)
    return replace(decoding, return_token_scores=decoding.return_token_scores or decoding.return_alternatives)


def _attended(
    translator: Translator,
    blocks: Iterator[list[str]],
    decoding: DecodeOptions,
    target_prefix: str | None,
    *,
    with_attention: bool,
) -> Iterator[tuple[Translation, Attention | None]]:
    """Translations, with their attention if wanted. One that failed is left to the caller, after those before it."""
    for translations in translator.translate_blocks(blocks, decoding, target_prefix=target_prefix, on_error="return"):
        if with_attention:
            attention = translator.attention(translations, max_batch_tokens=decoding.max_batch_tokens)
            yield from zip(translations, attention, strict=True)
        else:
            yield from ((translation, None) for translation in translations)


@contextmanager
def _writer(output_file: Path | None) -> Iterator[Any]:
    """A function that writes text; an output file gets its name only if the block succeeds."""
    if output_file is None:
        stdout = sys.stdout.buffer

        shown = visible if sys.stdout.isatty() else str

        def write(line: str) -> None:
            try:
                stdout.write(shown(line).encode("utf-8"))  # like the input, whatever the locale
                stdout.flush()
            except OSError as error:
                raise OSError(error.errno, error.strerror, "standard output") from None

        yield write
        return
    with atomic_text(output_file) as stream:
        yield stream.write
