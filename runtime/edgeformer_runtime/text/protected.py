"""What is not translated: URLs, addresses, mentions, hashtags, placeholders, emoji, and text without words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from edgeformer_runtime.text.block import Block, Item, overlapping, without_items

_EMOJI = r"©®\u2122\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_EMOJI_PARTS = r"\ufe0f\u200d\u20e3\U000e0020-\U000e007f"  # selectors, joiners, tags
# Lengths are limited so that searching takes linear time.
FORMULA = (
    r"(?<![\w$\\])(?:\$\$[^$]{1,1000}\$\$"
    r"|\$(?=[^\s$])(?=[^$\n]?\$|[^$\n]{0,200}[\\^_=<>{}+*/])[^$\n]{1,200}(?<!\s)\$)(?![\w$])"
)
"""``$x^2$`` and ``$$…$$``, but no prices: what is between the signs is a letter, or has a sign of mathematics."""
_SUFFIXES = (
    "bat|c|cfg|conf|cpp|css|csv|docx?|exe|gif|gz|h|html?|ini|jpe?g|js|json|log|md|mp[34]|odt|pdf|png|po|py|rst|rtf|sh|srt|"
    "svg|tar|toml|tsx?|txt|wav|xlsx?|xml|ya?ml|zip"
)
"""Ends of file names."""
_BALANCED = r"[^{}]{0,1000}+"
for _ in range(8):  # braces inside braces
    _BALANCED = rf"(?:[^{{}}]{{1,1000}}+|\{{{_BALANCED}\}}){{0,100}}+"
_PATTERNS = (
    FORMULA,
    r"(?:https?|ftp)://[^\s<>\"]+|www\.[^\s<>\"]+",
    r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+",  # john@example.com
    r"\{\{[^{}\n]{0,80}\}\}|\{%[^{}\n]{0,200}%\}",  # {{x}}, {% x %}
    r"[$%#]\{[^{}\n]{1,80}\}|\{[^{}\s]{0,80}\}",  # ${x}, %{x}, #{x}, {name}
    r"\{\s?[\w.-]{1,80},\s?(?:number|date|time|spellout|ordinal|duration)(?:,[^{}\n]{1,80})?\s?\}",  # {n, number}
    r"\{\s{0,9}[\w.-]{1,80}\s{0,9},\s{0,9}(?:plural|select|selectordinal)\s{0,9},"
    rf"{_BALANCED}\}}",  # {n, plural, one {…} other {…}}
    r"(?<![\w@./%])@[^\W\d]\w{0,63}(?:[.@/-]\w{1,63}){0,8}",  # @mention, @user@example.com, @scope/package
    r"(?<![\w#&/])#(?=[\d_]{0,99}[^\W\d_])\w{1,100}",  # #hashtag
    r"%\([^()\s]{1,80}\)[-#0 +]?\d*(?:\.\d+)?[a-zA-Z]",  # %(n)d
    r"%(?:\d+\$)?[-#0+]?\d*(?:\.\d+)?(?:l|ll|h|z)?[sdiufFeEgGxXoc@](?![a-zA-Z])",  # %s, %1$s, %5.2f
    r"(?<![\w%])%L?\d{1,2}(?![\w%])",  # %1, %L1
    r"\$[A-Z_][A-Z0-9_]+\b",  # $VAR
    r"(?<![\w/.~<-])(?:~|\.{1,2})?(?:/[\w.+-]{0,79}\w){1,20}/?(?![\w/])",  # /usr/share, ~/a.b, ./a/
    rf"(?<![\w.])[\w-]{{1,60}}(?:\.[\w-]{{1,30}}){{0,3}}\.(?:{_SUFFIXES})(?!\w)",  # README.md
    r"(?<![\w-])--[a-zA-Z][\w-]{1,40}",  # --option
    r"(?<!\w)(?:[a-z]|[A-Z]{2})[^\W_]{0,40}(?:_[^\W_]{1,40}){1,9}(?:\(\))?(?!\w)",  # snake_case
    r"(?<![\w.])[^\W\d](?:\w|\.(?=\w)){0,60}\(\)",  # f()
    r"\[\d{1,3}\]",  # [1]
    r"</?\d[\d:.]{0,20}/?>",  # <0>, </0>, <00:01.500>
    r"(?<![\w:]):[a-z0-9_+-]{0,40}[a-z][a-z0-9_+-]{0,40}:(?![\w:])",  # :emoji:
    rf"[{_EMOJI}][{_EMOJI}{_EMOJI_PARTS}]*",
)
_MAX_SIGNS = 3
"""Most signs between items that belong together."""
_PASSED = rf"\s{{1,64}}|(?<=\w)[^\Wfhw{_EMOJI}]{{1,64}}"
"""Where no pattern can match: white space, and the middle of a word that does not become a URL there."""
# A search in vain would hold up all other threads until the end of the text. So something matches everywhere.
_PROTECTED = re.compile(rf"{_PASSED}|(?P<kept>{'|'.join(_PATTERNS)})|(?s:.)")
_SENTENCE_END = ".,;:!?)]}'\"»”’…。"


def protected_items(block: Block) -> list[Item]:
    """Find what is not translated inside the sentences of a block, outside the items that it has already. It is neither
    begun in one element nor ended in another."""
    edges = {tag.offset for tag in block.tags if tag.partner is not None}
    edges.update(edge for item in block.items for edge in (item.start, item.end))
    return [
        block.item(start, end)
        for first, last in pairwise(sorted({0, len(block.text), *edges}))
        if not overlapping(block.items, first, last)
        for start, end in protected_spans(block.text, first, last)
    ]


def joined_items(block: Block, items: Sequence[Item]) -> list[Item]:
    """Ordered items, those with nothing but signs between them as one, such as ``{a}/{b}`` and ``<kbd>Ctrl</kbd>+<kbd>C
    </kbd>``."""
    groups: list[list[Item]] = []
    offsets = [tag.offset for tag in block.tags]
    for item in items:
        if groups and _is_joined(block.text, offsets, groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return [block.item(group[0].start, group[-1].end) if len(group) > 1 else group[0] for group in groups]


def _is_joined(text: str, tags: Sequence[int], one: Item, other: Item) -> bool:
    is_plain = not any(item.is_term or item.attributes for item in (one, other))
    between = text[one.end : other.start]
    has_tags = bisect_left(tags, one.end) < bisect_right(tags, other.start)
    return is_plain and len(between) <= _MAX_SIGNS and not has_tags and not re.search(r"[\w\s]", between)


def protected_spans(text: str, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int]]:
    """Find what is not translated in a text, or in some of its characters: begin and end of each part."""
    for match in _PROTECTED.finditer(text, first, len(text) if last is None else last):
        if not match["kept"]:
            continue
        start, end = match.span()
        if "://" in match[0] or match[0].startswith("www."):
            end -= _unlinked(match[0])
        yield start, end


def _unlinked(url: str) -> int:
    """The number of punctuation marks after a URL; a parenthesis or the like that closes one of the URL belongs to
    it."""
    kept, surplus = len(url), {close: url.count(close) - url.count(begin) for begin, close in ("()", "[]", "{}")}
    while kept > 1 and (last := url[kept - 1]) in _SENTENCE_END and surplus.get(last, 1) > 0:
        if last in surplus:
            surplus[last] -= 1
        kept -= 1
    return len(url) - kept


def has_words(text: str, start: int, end: int, items: Sequence[Item]) -> bool:
    """Return whether part of a text has a letter outside protected items."""
    kept_as_is = [item for item in overlapping(items, start, end) if not item.is_term]
    return any(map(str.isalpha, without_items(text, (start, end), kept_as_is)))
