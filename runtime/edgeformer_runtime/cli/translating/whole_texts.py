"""The options of ``translate`` for texts of several sentences and for documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import one_line
from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.errors import DataError, OptionError
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from edgeformer_runtime.decoding.options import DecodeChanges
    from edgeformer_runtime.text.options import Format
    from edgeformer_runtime.text.results import SentenceTranslation, TextTranslation
    from edgeformer_runtime.text.text_translator import TextTranslator
    from edgeformer_runtime.translator import Translator

whole_texts = options.group(
    "whole",
    split=click.option(
        "--split/--no-split",
        default=None,
        help="Whether a line may have several sentences, which are translated one by one. Default: it is one sentence.",
    ),
    format=click.option(
        "--format",
        type=click.Choice(["text", "html"]),
        help="html: the input is one HTML document, or each TEXT is one; implies --split.",
    ),
    glossary=click.option(
        "--glossary",
        type=click.Path(path_type=Path),
        help="UTF-8 file with a term, a tab and its translation per line; implies --split.",
    ),
)
"""Passes the argument ``whole``, a dictionary of those that were given."""


def is_whole(whole: dict[str, Any]) -> bool:
    """Return whether the options ask for more than lines of one sentence each."""
    if whole.get("split") is False and len(whole) > 1:
        raise click.UsageError("--no-split cannot be combined with --format or --glossary.")
    return bool(whole.get("split") or "format" in whole or "glossary" in whole)


def is_document(text: tuple[str, ...], output_file: Path | None) -> bool:
    """Return whether TEXT is the name of a document: an output of the same kind is named too.

    Raises:
        DataError: the document does not exist, or no output of its kind is named.
    """
    suffix = Path(text[0]).suffix.lower() if len(text) == 1 else ""
    if not suffix or any(map(str.isspace, suffix)):
        return False
    from edgeformer_runtime.text.documents import SUFFIXES

    if suffix not in SUFFIXES:
        return False
    has_output = output_file is not None and output_file.suffix.lower() == suffix
    try:
        exists = Path(text[0]).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null character
        exists = False
    if exists and not has_output:
        raise DataError(
            f"`{text[0]}` is a document; name its translation with --output, which must end in {suffix}. To translate "
            "the name itself, give --no-split."
        )
    if has_output and not exists:
        raise DataError(f"Document `{text[0]}` does not exist; to translate this as text, give --no-split.")
    return exists


def translate_document_file(translator: TextTranslator, search: DecodeChanges, source: Path, target: Path) -> None:
    """Translate a document file."""
    from edgeformer_runtime.text.documents import translate_document

    translate_document(translator, source, target, translator.decoding(**text_changes(search)))


def text_changes(search: DecodeChanges) -> DecodeChanges:
    """Return the options of the search that whole texts can have.

    Raises:
        OptionError: one does not go with whole texts.
    """
    if search.get("n_best", 1) > 1:
        raise OptionError("`--nbest` gives several translations of a sentence; leave out `--split` and `--format`.")
    search = search.copy()
    search.pop("return_token_scores", None)  # always wanted, for the confidence
    return search


def text_translator(translator: Translator, whole: dict[str, Any], *, as_json: bool) -> TextTranslator:
    """Make a translator of texts from the options."""
    from edgeformer_runtime.text.glossary import Glossary
    from edgeformer_runtime.text.options import TextOptions
    from edgeformer_runtime.text.text_translator import TextTranslator

    glossary = Glossary.from_file(whole["glossary"]) if "glossary" in whole else None
    return TextTranslator(translator, TextOptions(glossary=glossary, word_details=as_json))


def translated_texts(
    translator: TextTranslator,
    whole: dict[str, Any],
    search: DecodeChanges,
    text: tuple[str, ...],
    input_file: Path | None,
    *,
    as_json: bool,
) -> Iterator[str]:
    """What is written for each text: its translation or a record, with a line end.

    Args:
        translator: translates texts.
        whole: the options.
        search: decoding options to change.
        text: texts.
        input_file: a file in their place.
        as_json: give records.

    Raises:
        OptionError: an option does not go with whole texts.
    """
    search = text_changes(search)
    format = whole.get("format", "text")
    if format == "html" and not text:
        source = _content(input_file)
        (translation,) = translator.translate([source], format="html", **search)
        yield _record(source, translation) if as_json else translation.text
        return
    with line_blocks(text, input_file) as blocks:
        for block in blocks:
            yield from written_texts(translator, block, format, search, as_json=as_json)


def written_texts(
    translator: TextTranslator, block: list[str], format: Format, search: DecodeChanges, *, as_json: bool
) -> Iterator[str]:
    """What is written for each text of a block, with a line end."""
    shown: Callable[[str], str] = one_line if format == "text" else str
    for source, translation in zip(block, translator.translate(block, format=format, **search), strict=True):
        yield _record(source, translation) if as_json else shown(translation.text) + "\n"


def _content(input_file: Path | None) -> str:
    from edgeformer_runtime.text.documents.document import decoded

    if input_file is not None and str(input_file) != "-":
        content, name = input_file.read_bytes(), f"`{input_file}`"
    elif sys.stdin is None:
        raise DataError("Standard input is closed; give TEXT, or a file with --input.")
    else:
        content, name = sys.stdin.buffer.read(MAX_DOCUMENT_BYTES + 1), "standard input"
    if len(content) > MAX_DOCUMENT_BYTES:
        raise DataError(f"The document in {name} has more than {MAX_DOCUMENT_BYTES:,} bytes; divide it.")
    _, text = decoded(content, name)
    return text


def _record(source: str, translation: TextTranslation) -> str:
    sentences = [_sentence_record(source, sentence, translation.text) for sentence in translation.sentences]
    record = {"source": source, "text": translation.text, "sentences": sentences}
    return msgspec.json.encode(record).decode() + "\n"


def _sentence_record(source: str, sentence: SentenceTranslation, text: str) -> dict[str, Any]:
    return {
        "source": source[slice(*sentence.source)],
        "text": text[slice(*sentence.target)],
        "source_span": sentence.source,
        "target_span": sentence.target,
        "is_copied": sentence.translation is None,
        "confidence": sentence.confidence,
        "wrong_numbers": sentence.wrong_numbers,
        "words": [
            {
                "text": word.text,
                "probability": word.probability,
                "source_span": word.source,
                "target_span": word.target,
            }
            for word in sentence.words
        ],
    }
