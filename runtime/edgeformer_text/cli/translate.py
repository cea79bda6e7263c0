"""The command ``translate``: text from arguments, a file or standard input, without torch."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import atomic_text, print_warnings
from edgeformer_runtime.cli.terminal import visible
from edgeformer_runtime.cli.text_input import line_blocks, standard_input
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.files import atomic_file
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES
from edgeformer_text.cli.block_output import (
    BlockOutput,
    DoubtCounts,
    LineBlock,
    text_record,
    translated_lines,
    translated_texts,
)
from edgeformer_text.cli.chosen_input import (
    PACKED,
    TranslationInput,
    check_options,
    check_output,
    chosen_input,
    whole_texts,
)
from edgeformer_text.cli.distributed import cluster_options, ray_files, translate_file, uses_ray

if TYPE_CHECKING:
    from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions
    from edgeformer_runtime.translator import Translator
    from edgeformer_text.distributed.ray_workers import Work
    from edgeformer_text.text_translator import TextTranslator


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
    threads=options.threads,
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
    check_options(whole, search, ("--target-prefix", target_prefix is not None), ("--attention", attention))
    chosen = chosen_input(text, input_file, whole)
    check_output(chosen, output_file, whole, as_json=as_json)
    on_ray = ray_files(chosen, output_file, whole, attention=attention) if uses_ray(cluster) else None
    if attention and not as_json:
        raise click.UsageError("--attention needs --json.")
    here = {**engine, "workers": 1, "threads": 1} if on_ray else {**engine, "engine": cluster["engine"]}
    translator = _opened(bundle, trusted_keys, here, many=bool(chosen.file) and not on_ray)
    options.advise_kernels(translator.bundle, cluster["engine"], engine["device"])
    settings = {**search, "target_prefix": target_prefix, "json": as_json}
    work: Work[LineBlock, BlockOutput]
    if whole["lines"]:
        decoding = _decoding(translator, search, target_prefix, attention=attention, as_json=as_json)
        work = partial(translated_lines, decoding=decoding, target_prefix=target_prefix, as_json=as_json)
    else:
        texts = _text_translator(translator, whole, as_json=as_json)
        decoding = _text_decoding(texts, search)
        settings |= {"split": True, "glossary": texts.glossary.terms if texts.glossary else None}
        work = partial(translated_texts, text_options=texts.options, decoding=decoding, as_json=as_json)
    if on_ray:
        doubts = translate_file(translator, engine, cluster.get("address"), work, *on_ray, settings)
    elif chosen.kind:
        doubts = _write_document(texts, chosen, decoding, output_file, as_json=as_json)
    else:
        work = partial(work, format=whole["format"]) if "format" in whole else work
        keep_returns = output_file is not None and not whole["lines"] and not as_json
        doubts = DoubtCounts()
        with line_blocks(*chosen[:2], keep_returns=keep_returns) as blocks, _writer(output_file) as write:
            for output in map(partial(work, translator), _numbered(blocks)):  # as they arrive
                write(output.text)
                output.tell()  # and end, if a line cannot be translated; those before it are written
                doubts = doubts.merged(output.doubts)
    advice = "; --json tells which" if chosen.kind in ("", ".htm", ".html") and not as_json else ""
    print_warnings(doubts.warnings(advice))


def _opened(bundle: Path, trusted_keys: tuple[Path, ...], engine: dict[str, Any], *, many: bool) -> Translator:
    """Open a bundle; ``many`` if it is for many sentences."""
    from edgeformer_runtime.engines.cpus import divide_for_many
    from edgeformer_runtime.translator import Translator

    if many:
        divided = divide_for_many(engine["device"], engine["threads"], engine["workers"])
        engine |= zip(("threads", "workers"), divided, strict=True)
    translator = Translator.open(bundle, trusted_keys=trusted_keys or None, **engine)
    if translator.bundle.manifest.traits.failed_validation:
        print_warnings(["The model failed the validation of its own training, so any translation may be wrong."])
    return translator


def _decoding(
    translator: Translator, search: DecodeChanges, target_prefix: str | None, *, attention: bool, as_json: bool
) -> DecodeOptions:
    """Check all options, even if there is no line to translate."""
    from dataclasses import replace

    from edgeformer_runtime.encoding import prefix_ids

    search |= {"return_scores": as_json or search.get("n_best", 1) > 1, "return_attention": attention}
    decoding = translator.options(**search)
    if decoding.n_best > decoding.places and not (decoding.is_sampling or decoding.return_alternatives):
        raise OptionError(f"`--nbest` must be at most `--beam` ({decoding.places}), but is {decoding.n_best}.")
    decoding.verify()
    if decoding.return_token_scores and not as_json:
        raise OptionError("`--token-scores` needs `--json`.")
    prefix_ids(translator.target_tokenizer, target_prefix, 1)
    if attention:
        translator.session.open_attention()
    return replace(decoding, return_token_scores=True) if decoding.return_alternatives else decoding


def _text_translator(translator: Translator, whole: dict[str, Any], *, as_json: bool) -> TextTranslator:
    """Make a translator of texts from the options, and say if it cannot find sentences."""
    from edgeformer_text.glossary import Glossary
    from edgeformer_text.options import TextOptions
    from edgeformer_text.segmentation import segmenter
    from edgeformer_text.text_translator import TextTranslator

    with warnings.catch_warnings(record=True, action="always") as raised:
        segmenter()
    print_warnings(str(warning.message) for warning in raised)
    glossary = Glossary.from_file(whole["glossary"]) if "glossary" in whole else None
    return TextTranslator(translator, TextOptions(glossary=glossary, word_details=as_json))


def _text_decoding(translator: TextTranslator, search: DecodeChanges) -> DecodeOptions:
    """Return the options to translate texts with, which are checked even if there is no text.

    Raises:
        OptionError: one is out of range.
    """
    changes = search.copy()
    changes.pop("return_token_scores", None)  # always wanted, for the confidence
    decoding = translator.decoding(**changes)
    decoding.verify()
    return decoding


def _write_document(
    texts: TextTranslator, chosen: TranslationInput, decoding: DecodeOptions, output_file: Path | None, *, as_json: bool
) -> DoubtCounts:
    """Translate a document; return which sentences may be wrong.

    Raises:
        DataError: the document is damaged, or too large.
    """
    from edgeformer_text.documents.document import decoded
    from edgeformer_text.documents.files import translate_content

    name, content = _content(chosen.file)
    written, translations = translate_content(texts, content, name, decoding, chosen.kind)
    if as_json:
        _, source = decoded(content, f"`{name}`")
        written = text_record(source, translations[0]).encode()
    if output_file is not None and chosen.kind in PACKED:
        with atomic_file(output_file) as file:
            file.write(written)
    else:
        with _writer(output_file) as write:
            write(written.decode())
    return DoubtCounts.of(translations)


def _content(file: Path | None) -> tuple[str, bytes]:
    """Name and content of a document; not much more of one that is too large."""
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            return str(file), stream.read(MAX_DOCUMENT_BYTES + 1)
    return "standard input", standard_input().read(MAX_DOCUMENT_BYTES + 1)


def _numbered(blocks: Iterable[list[str]]) -> Iterator[LineBlock]:
    """Blocks with the position of their first lines."""
    first = 0
    for lines in blocks:
        yield LineBlock(first, lines)
        first += len(lines)


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
