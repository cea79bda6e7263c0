"""How ``translate`` translates texts of several sentences, and documents."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer_runtime.cli.output import print_warnings
from edgeformer_runtime.cli.text_input import standard_input
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES
from edgeformer_text.cli.block_output import DoubtCounts, text_record

if TYPE_CHECKING:
    from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions
    from edgeformer_runtime.translator import Translator
    from edgeformer_text.cli.chosen_input import TranslationInput
    from edgeformer_text.text_translator import TextTranslator


def text_translator(translator: Translator, whole: dict[str, Any], *, as_json: bool) -> TextTranslator:
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


def text_decoding(translator: TextTranslator, search: DecodeChanges) -> DecodeOptions:
    """Return the options to translate texts with, which are checked even if there is no text.

    Raises:
        OptionError: one is out of range.
    """
    changes = search.copy()
    changes.pop("return_token_scores", None)  # always wanted, for the confidence
    decoding = translator.decoding(**changes)
    decoding.verify()
    return decoding


def translated_document(
    translator: TextTranslator, chosen: TranslationInput, decoding: DecodeOptions, *, as_json: bool
) -> tuple[bytes, DoubtCounts]:
    """Translate a document.

    Returns:
        What is written, and which sentences may be wrong.

    Raises:
        DataError: the document is damaged, or too large.
    """
    from edgeformer_text.documents.document import decoded
    from edgeformer_text.documents.files import translate_content

    name, content = _content(chosen.file)
    written, translations = translate_content(translator, content, name, decoding, chosen.kind)
    if as_json:
        _, source = decoded(content, f"`{name}`")
        written = text_record(source, translations[0]).encode()
    return written, DoubtCounts.of(translations)


def _content(file: Path | None) -> tuple[str, bytes]:
    """Name and content of a document; not much more of one that is too large."""
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            return str(file), stream.read(MAX_DOCUMENT_BYTES + 1)
    return "standard input", standard_input().read(MAX_DOCUMENT_BYTES + 1)
