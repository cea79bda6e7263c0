"""What ``translate`` writes for a block of lines: of one sentence each, or of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeformer_runtime.cli.output import console, one_line, plural
from edgeformer_text.surface import repaired

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeformer_runtime.errors import InputError, StoppedError
    from edgeformer_runtime.search.options import DecodeOptions
    from edgeformer_runtime.translation import TextHypothesis, Translation
    from edgeformer_runtime.translator import Translator
    from edgeformer_text.options import Format, TextOptions
    from edgeformer_text.results import SentenceTranslation, TextTranslation


class LineBlock(NamedTuple):
    """Lines that are translated together."""

    first: int
    """Zero-based position of the first in the input."""
    lines: list[str]


class DoubtCounts(NamedTuple):
    """Number of translated sentences, and of those with low confidence."""

    sentences: int = 0
    doubtful: int = 0

    @classmethod
    def of(cls, texts: Iterable[TextTranslation]) -> DoubtCounts:
        """Count the sentences of texts."""
        translated = [each for text in texts for each in text.sentences if each.translation is not None]
        return cls(len(translated), sum(sentence.is_doubtful for sentence in translated))

    def merged(self, other: DoubtCounts | None) -> DoubtCounts:
        """Return the sums of both."""
        return self if other is None else DoubtCounts(self.sentences + other.sentences, self.doubtful + other.doubtful)

    def warnings(self, advice: str = "") -> Iterator[str]:
        """Yield a warning if a sentence may be wrong; ``advice`` tells how to find it."""
        if self.doubtful:
            yield f"{self.doubtful:,} of {plural(self.sentences, 'sentence')} may be wrong{advice}."


class BlockOutput(NamedTuple):
    """What becomes of a block."""

    text: str
    """What is written for its lines."""
    notes: list[str]
    """What to tell the user."""
    doubts: DoubtCounts | None = None
    """Sentences of texts, and which of them may be wrong."""
    error: InputError | StoppedError | None = None
    """Why the line that would follow was not translated."""

    def tell(self) -> None:
        """Print the notes, and raise the error if there is one."""
        for note in self.notes:
            console(stderr=True).print(note)
        if self.error is not None:
            raise self.error


def translated_lines(
    translator: Translator, block: LineBlock, *, decoding: DecodeOptions, target_prefix: str | None, as_json: bool
) -> BlockOutput:
    """Translate lines of one sentence each, up to the first one that cannot be translated."""
    written, notes = list[str](), list[str]()
    translations = translator.translate(block.lines, decoding, target_prefix=target_prefix, on_error="return")
    for number, translation in enumerate(translations, block.first + 1):
        if translation.error is not None:
            return BlockOutput("".join(written), notes, error=translation.at(block.first).error)
        if decoding.return_alternatives:
            from edgeformer_text.results import plausible

            translation = plausible(translation)
        if dropped := translation.source.truncated:
            tokens = "its last token was" if dropped == 1 else f"its last {dropped} tokens were"
            notes.append(f"Text {number} was truncated: {tokens} dropped.")
        written.append(_json_line(translation) if as_json else _plain_lines(translation, decoding))
    return BlockOutput("".join(written), notes)


def translated_texts(
    translator: Translator,
    block: LineBlock,
    *,
    text_options: TextOptions,
    decoding: DecodeOptions,
    as_json: bool,
    format: Format = "text",
) -> BlockOutput:
    """Translate lines of several sentences each, or documents of HTML."""
    from edgeformer_text.text_translator import TextTranslator

    texts = TextTranslator(translator, text_options)
    plans = [texts.split(line, format=format, index=index) for index, line in enumerate(block.lines)]
    translations = texts.translate_plans(plans, decoding)
    if as_json:
        written = [text_record(*pair) for pair in zip(block.lines, translations, strict=True)]
    else:
        shown = one_line if format == "text" else str
        written = [shown(translation.text) + "\n" for translation in translations]
    return BlockOutput("".join(written), [], DoubtCounts.of(translations))


def _plain_lines(translation: Translation, decoding: DecodeOptions) -> str:
    """The best text, or up to ``n_best`` lines with score and text, and a blank line. A text that the search found in
    several tokens is written once; those that are drawn at random are all written."""
    lines = [(one_line(repaired(translation.source.text, each.text)), each.score) for each in translation.hypotheses]
    if decoding.n_best == 1:
        return lines[0][0] + "\n"
    if not decoding.is_sampling:
        lines = [line for at, line in enumerate(lines) if line[0] not in dict(lines[:at])]
    return "".join(f"{score:.4f}\t{text}\n" for text, score in lines) + "\n"


def _json_line(translation: Translation) -> str:
    """One JSON object: the source, its hypotheses, and the attention of the best one if there is any."""
    record: dict[str, Any] = {
        "source": translation.source.text,
        "hypotheses": [_hypothesis_record(hypothesis) for hypothesis in translation.hypotheses],
    }
    if translation.source.truncated:
        record["truncated"] = translation.source.truncated
    if (attention := translation.best.attention) is not None:
        record["attention"] = {
            "source_tokens": attention.source_tokens,
            "target_tokens": attention.target_tokens,
            "weights": attention.weights.astype(float).round(6).tolist(),
            "alignment": attention.alignment,
        }
    return msgspec.json.encode(record).decode() + "\n"


def _hypothesis_record(hypothesis: TextHypothesis) -> dict[str, Any]:
    record = {name: getattr(hypothesis, name) for name in ("text", "tokens", "ids", "score", "finished")}
    if hypothesis.token_scores is not None:
        record["token_scores"] = hypothesis.token_scores
        record["confidence"] = hypothesis.confidence
    return record


def text_record(source: str, translation: TextTranslation) -> str:
    """One JSON object: a text, its translation, and its sentences."""
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
