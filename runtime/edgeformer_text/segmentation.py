"""From a text to spans of sentences that the model can read. What is between the spans is copied.

1. Each line is divided into sentences by sentencex, without the markers of lists and quotations before them.
2. Sentences that were divided inside an item, such as a URL, are joined again.
3. A sentence with too many tokens is split into two near its middle, and so are they, until all parts fit.
"""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice

from edgeformer_runtime.errors import OptionError, missing_package
from edgeformer_runtime.search.requests import Stop
from edgeformer_text.block import UNREAD, Item, Span, inside, overlapping
from edgeformer_text.lexicon import LEXICON, base_code

Count = Callable[[list[str]], list[int]]
"""Returns the number of tokens of each text."""

_LINE = re.compile(r"[^\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_MARKER = re.compile(LEXICON["sentences"]["marker"])
"""What a line of a list, a quotation or a heading begins with."""
_SPLITS = tuple(map(re.compile, LEXICON["sentences"]["splits"]))
"""Where a long sentence is split, the best first: after clauses, before conjunctions, at spaces."""
_ANY_END = re.compile(r"[.!?]\s|[。！？]")
_INVISIBLE = re.compile(rf"[\x00\u200b]|{UNREAD.pattern}")
"""Null, zero width space, and what models are not given."""
_SPACE = re.compile(r"\s")
MAX_SEGMENTED_CHARACTERS = 4096
MAX_SEGMENTED_SENTENCES = 256
"""Longer lines, and those of more sentences, are divided before their sentences are found."""
MAX_COUNTED_CHARACTERS = 4096
"""Longer sentences are split without counting their tokens, which would take long."""


class SentenceLimit:
    """How many more sentences the texts of a request may have, and whether they are wanted at all. It is asked while
    they are looked for, since that takes long.

    Args:
        most: sentences of all texts together.
        stop: gives up looking for them.
    """

    def __init__(self, most: float = math.inf, stop: Stop | None = None) -> None:
        self._most = self._left = most
        self._stop = stop or Stop()

    def check(self, count: int = 0) -> None:
        """Check whether a text may have a number of sentences.

        Raises:
            OptionError: it may not.
            StoppedError: it is not wanted any more.
        """
        self._stop.check()
        if count > self._left:
            raise OptionError(f"There are more than {self._most:,} sentences; send fewer at a time.")

    def take(self, count: int) -> None:
        """Check it, and count them."""
        self.check(count)
        self._left -= count


def sentence_spans(text: str, language: str = "", limit: SentenceLimit | None = None) -> list[Span]:
    """Find the sentences of a text, without the white space and list markers around them.

    A line end always ends a sentence. Without sentencex, nothing else does, which a warning says once.

    Args:
        text: any text.
        language: its language code, for abbreviations; may be empty.
        limit: how many of them may have letters.

    Raises:
        OptionError, StoppedError: see :meth:`SentenceLimit.check`.
    """
    spans: list[Span] = []
    limit, count = limit or SentenceLimit(), 0
    segment = segmenter()
    code = base_code(language) or "en"
    for line in _LINE.finditer(text):
        # The marker of a list item or a quotation is not part of its first sentence.
        start, end = line.span()
        if marker := _MARKER.match(text, start, end):
            start = marker.end()
        for chunk in _chunks(text[start:end]):
            for part in segment(code, chunk):
                spans += trimmed(text, start, start + len(part))
                start += len(part)
                count += any(map(str.isalpha, part))
            limit.check(count)
    return spans


def _chunks(line: str) -> Iterator[str]:
    """Divide a very long line, or one of very many sentences, after the end of a sentence or at a space: the library's
    time grows with the square."""
    start = 0
    while start < len(line):
        part = line[start : start + MAX_SEGMENTED_CHARACTERS]
        ends = [match.end() for match in islice(_ANY_END.finditer(part), MAX_SEGMENTED_SENTENCES)]
        end = len(part)
        if len(ends) == MAX_SEGMENTED_SENTENCES or end < len(line) - start:
            end = ends[-1] if ends else part.rfind(" ") + 1 or end
        yield part[:end]
        start += end


def trimmed(text: str, start: int, end: int) -> list[Span]:
    """The span without white space and invisible characters at its ends; no span if nothing is left."""
    while start < end and (text[start].isspace() or _INVISIBLE.match(text, start)):
        start += 1
    while start < end and (text[end - 1].isspace() or _INVISIBLE.match(text, end - 1)):
        end -= 1
    return [(start, end)] if start < end else []


def fitting_spans(text: str, spans: Sequence[Span], items: Sequence[Item], limit: int, count: Count) -> list[Span]:
    """Split sentences that have too many tokens, where it hurts least: after clauses, before conjunctions, at spaces.

    Args:
        text: the text.
        spans: its sentences.
        items: parts of it that are not split.
        limit: maximum number of tokens.
        count: counts tokens.
    """
    waiting, fitting = list(spans), list[Span]()
    while waiting:
        # All sentences that are not known to fit are counted at once, since the tokenizer is fastest that way.
        short = [span for span in waiting if span[1] - span[0] <= MAX_COUNTED_CHARACTERS]
        counts = dict(zip(short, count([text[start:end] for start, end in short]), strict=True))
        # Those that do not fit are halved, and their halves are counted in the next round.
        halves: list[Span] = []
        for start, end in waiting:
            offset = None if counts.get((start, end), limit + 1) <= limit else _split_offset(text, start, end, items)
            if offset is None:
                fitting.append((start, end))
            else:
                halves += [*trimmed(text, start, offset), *trimmed(text, offset, end)]
        waiting = halves
    return sorted(fitting)


def joined_spans(spans: Sequence[Span], items: Sequence[Item]) -> list[Span]:
    """Join sentences that were split in the middle of an item."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and (inside(joined[-1][1], items) or inside(start, items)):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def with_whole_items(span: Span, items: Sequence[Item]) -> Span:
    """The span with all of those items that it has part of: their outer white space is theirs."""
    inner = overlapping(items, *span)
    return (min(span[0], inner[0].start), max(span[1], inner[-1].end)) if inner else span


def _split_offset(text: str, start: int, end: int, items: Sequence[Item]) -> int | None:
    """Where it is best to split a sentence; ``None`` if it is a single character or item."""
    # The best kind of split that the middle half of the sentence has, as near to its middle as possible.
    middle, quarter = (start + end) // 2, (end - start) // 4
    for pattern in _SPLITS:
        offsets = [
            match.end()
            for match in pattern.finditer(text, start + quarter, end - quarter)
            if start < match.end() < end and inside(match.end(), items) is None
        ]
        if offsets:
            return min(offsets, key=lambda offset: abs(offset - middle))
    # There is no space: before or behind the item in the middle, or else between two characters.
    item = inside(middle, items)
    if item is not None:
        return next((edge for edge in (item.start, item.end) if start < edge < end), None)
    return next(_character_starts(text, start, end, middle), None)


def _character_starts(text: str, start: int, end: int, middle: int) -> Iterator[int]:
    """Offsets from the middle on where a character begins, as a reader sees it; failing that, any offset."""
    offsets = range(middle if middle > start else start + 1, end)
    for offset in offsets:
        is_part = unicodedata.combining(text[offset]) or text[offset] == "\ufe0f"
        if not is_part and "\u200d" not in text[offset - 1 : offset + 1]:
            yield offset
    yield from offsets


@cache
def segmenter() -> Callable[[str, str], list[str]]:
    """Return what finds the sentences of a line, given its language code and the line; without sentencex, with a
    warning, what takes a line for a sentence."""
    try:
        import sentencex
    except ModuleNotFoundError as error:
        missing = missing_package("finding them within a line", error.name, "text")
        warnings.warn(f"Only line ends separate sentences; {missing}", stacklevel=2)
        return lambda language, text: [text]

    def segment(language: str, text: str) -> list[str]:
        # The library fails on white space outside ASCII.
        plain = _SPACE.sub(" ", text)
        try:
            parts = sentencex.segment(language, plain)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # which is not an Exception
                raise
            return [text]
        return parts if "".join(parts) == plain else [text]

    return segment
