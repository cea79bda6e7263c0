"""What ``translate`` writes for texts of several sentences and for documents."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from edgeformer_runtime.cli.output import one_line, print_warnings
from edgeformer_runtime.cli.text_input import line_blocks, standard_input
from edgeformer_runtime.cli.translating.doubts import Doubts
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from edgeformer_runtime.cli.translating.chosen_input import Chosen
    from edgeformer_runtime.decoding.options import DecodeChanges, DecodeOptions
    from edgeformer_runtime.text.options import Format
    from edgeformer_runtime.text.results import SentenceTranslation, TextTranslation
    from edgeformer_runtime.text.text_translator import TextTranslator
    from edgeformer_runtime.translator import Translator


def text_translator(translator: Translator, whole: dict[str, Any], *, as_json: bool) -> TextTranslator:
    """Make a translator of texts from the options, and say if it cannot find sentences."""
    from edgeformer_runtime.text.glossary import Glossary
    from edgeformer_runtime.text.options import TextOptions
    from edgeformer_runtime.text.segmentation import segmenter
    from edgeformer_runtime.text.text_translator import TextTranslator

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


@dataclass(frozen=True)
class TextWork:
    """Writes translations of texts, or records of them, and counts what is doubtful."""

    translator: TextTranslator
    decoding: DecodeOptions
    doubts: Doubts
    as_json: bool

    @classmethod
    def of(cls, translator: TextTranslator, decoding: DecodeOptions, *, as_json: bool) -> Self:
        """Begin to count."""
        return cls(translator, decoding, Doubts(translator.translator.languages[0]), as_json)

    def lines(self, chosen: Chosen, format: Format, *, keep_returns: bool) -> Iterator[str]:
        """What is written for lines of text, or texts of the command line."""
        with line_blocks(chosen.texts, chosen.file, keep_returns=keep_returns and not self.as_json) as blocks:
            for block in blocks:
                yield from self.block(block, format)

    def block(self, block: list[str], format: Format = "text") -> Iterator[str]:
        """What is written for each text of a block, with a line end."""
        shown: Callable[[str], str] = one_line if format == "text" else str
        translations = self.translator.translate(block, format=format, options=self.decoding)
        for source, translation in zip(block, translations, strict=True):
            self.doubts.add(translation)
            yield _record(source, translation) if self.as_json else shown(translation.text) + "\n"

    def document(self, chosen: Chosen) -> bytes:
        """What is written for a document.

        Raises:
            DataError: it is damaged, or too large.
        """
        from edgeformer_runtime.text.documents.document import decoded
        from edgeformer_runtime.text.documents.files import translate_content

        name, content = _content(chosen.file)
        written, translations = translate_content(self.translator, content, name, self.decoding, chosen.kind)
        for translation in translations:
            self.doubts.add(translation)
        if self.as_json:
            _, source = decoded(content, f"`{name}`")
            return _record(source, translations[0]).encode()
        return written


def _content(file: Path | None) -> tuple[str, bytes]:
    """Name and content of a document; not much more of one that is too large."""
    if file is not None and str(file) != "-":
        with file.open("rb") as stream:
            return str(file), stream.read(MAX_DOCUMENT_BYTES + 1)
    return "standard input", standard_input().read(MAX_DOCUMENT_BYTES + 1)


def _record(source: str, translation: TextTranslation) -> str:
    sentences = [_sentence_record(source, sentence, translation.text) for sentence in translation.sentences]
    record = {"source": source, "text": translation.text, "sentences": sentences}
    return msgspec.json.encode(record).decode() + "\n"


def _sentence_record(source: str, sentence: SentenceTranslation, text: str) -> dict[str, Any]:
    return {
        "source": source[slice(*sentence.source_span)],
        "text": text[slice(*sentence.target_span)],
        "source_span": sentence.source_span,
        "target_span": sentence.target_span,
        "is_copied": sentence.translation is None,
        "confidence": sentence.confidence,
        "wrong_numbers": sentence.wrong_numbers,
        "is_doubtful": sentence.is_doubtful,
        "words": sentence.words,
    }
