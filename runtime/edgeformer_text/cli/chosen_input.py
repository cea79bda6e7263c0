"""What ``translate`` is asked to translate: lines of one sentence each, lines of text, or a document."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import refuse_input
from edgeformer_runtime.errors import ConfigError, DataError

if TYPE_CHECKING:
    from edgeformer_runtime.search.options import DecodeChanges

whole_texts = options.group(
    "whole",
    lines=click.option(
        "--lines",
        is_flag=True,
        help="Translate every line, and every TEXT, as one sentence, exactly as it is.",
    ),
    format=click.option(
        "--format",
        type=click.Choice(["text", "html"]),
        help="What the input is, whatever its name; html: one HTML document, or one in each TEXT.",
    ),
    glossary=click.option(
        "--glossary",
        type=click.Path(path_type=Path),
        help="UTF-8 file with a term, a tab and its translation per line.",
    ),
)
"""Passes the argument ``whole``, a dictionary of those that were given."""


PACKED = (".docx", ".odt")
"""Kinds of documents that are not text, which are not written on standard output."""


class TranslationInput(NamedTuple):
    """What is translated."""

    texts: tuple[str, ...]
    """Texts of the command line."""
    file: Path | None
    """A file in their place; ``None`` or ``-`` is standard input."""
    kind: str
    """Suffix of the kind of document that the file is; empty for lines of text."""


def chosen_input(text: tuple[str, ...], input_file: Path | None, whole: dict[str, Any]) -> TranslationInput:
    """Return what is translated, and as what. A TEXT that is the name of a document stands for the file.

    Raises:
        click.UsageError: both a TEXT and a file were given.
        DataError: a TEXT is the name of a document that does not exist, or is not alone, or of another file; or a
            document is compressed.
    """
    if text and input_file is not None:
        raise click.UsageError("Give TEXT or --input, not both.")
    if whole["lines"] or "format" in whole:
        return TranslationInput(text, input_file, ".html" if whole.get("format") == "html" and not text else "")
    for word in text:
        if not _is_document_name(word):
            if _is_file(word) and Path(word).suffix:
                kinds = ", ".join(_kinds())
                raise DataError(
                    f"`{word}` is a file of another kind than {kinds}; to translate its name, give --format text."
                )
            continue
        if not _is_file(word):
            raise DataError(f"File `{word}` does not exist; to translate its name, give --format text.")
        if len(text) > 1:
            raise DataError(f"`{word}` is a file, which must be the only TEXT; to translate names, give --format text.")
        text, input_file = (), Path(word)
    suffix = "" if input_file is None else input_file.suffix.lower()
    if input_file is not None and suffix == ".gz" and _is_document_suffix(Path(input_file.stem).suffix.lower()):
        raise DataError(f"`{input_file}` is compressed; unpack it with gunzip, or give --format text for plain text.")
    return TranslationInput(text, input_file, suffix if suffix != ".txt" and _is_document_suffix(suffix) else "")


def check_options(whole: dict[str, Any], search: DecodeChanges, *others: tuple[str, bool]) -> None:
    """Raise a ``UsageError`` for options that need ``--lines``, or exclude it; ``others`` are names of such options of
    other modules, and whether they were given."""
    if whole["lines"] and len(whole) > 1:
        raise click.UsageError("--lines cannot be combined with --format or --glossary.")
    token_scores = search.get("return_token_scores", False)
    single = (("--nbest", search.get("n_best", 1) > 1), ("--token-scores", token_scores), *others)
    for name, is_given in single:
        if is_given and not whole["lines"]:
            raise click.UsageError(f"{name} is for lines of one sentence each: give --lines too.")


def check_output(chosen: TranslationInput, output_file: Path | None, whole: dict[str, Any], *, as_json: bool) -> None:
    """Check that the translation can be written where it shall be.

    Raises:
        click.UsageError: the document cannot be written as JSON.
        ConfigError: the output is the input, or must be a file of the same kind.
    """
    if output_file is not None:
        refuse_input(output_file, chosen.file)
    if as_json and chosen.kind not in ("", ".htm", ".html"):
        raise click.UsageError(f"--json is for text and HTML; leave it out to translate `{chosen.file}`.")
    if output_file is None and chosen.kind in PACKED:
        raise ConfigError(f"Name the translation of `{chosen.file}` with --output; it must end in {chosen.kind}.")
    is_same = output_file is None or output_file.suffix.lower() == chosen.kind
    if chosen.kind and not is_same and "format" not in whole and not as_json:
        raise ConfigError(f"`{output_file}` must end in {chosen.kind}, since the translation is of the same kind.")


def _is_document_name(word: str) -> bool:
    """Whether a text looks like the name of a document, or is that of one."""
    is_name = not any(map(str.isspace, word)) or "/" in word or os.sep in word
    return _is_document_suffix(Path(word).suffix.lower()) and (is_name or _is_file(word))


def _is_document_suffix(suffix: str) -> bool:
    return bool(suffix) and not any(map(str.isspace, suffix)) and suffix in _kinds()


def _kinds() -> tuple[str, ...]:
    from edgeformer_text.documents import SUFFIXES  # only names with a suffix need it

    return SUFFIXES


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False
