"""Numbers that a translation does not have, as items to put into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from edgeformer_runtime.text.block import Block, Item, Span, without_items
from edgeformer_runtime.text.items import put_over
from edgeformer_runtime.text.numbers.formats import adapted, with_signs
from edgeformer_runtime.text.numbers.groups import numbers
from edgeformer_runtime.text.words import AlignedSentence


def number_items(
    block: Block,
    span: Span,
    taken: Sequence[Item],
    wrong: Counter[str],
    languages: tuple[str, str],
    *,
    with_sign: bool,
) -> list[Item]:
    """Make items of numbers of a sentence, written as the target language does.

    Args:
        block: the block.
        span: characters of the sentence in it.
        taken: items that the sentence has already.
        wrong: groups of digits; items are made of the numbers that have one, or of all if none has.
        languages: language codes of source and target.
        with_sign: whether the sign of a currency or unit beside a number belongs to the item.
    """
    text, start = without_items(block.text, span, taken), span[0]
    found, items = numbers(text, languages[0]), []
    for number in [number for number in found if number.groups & wrong] or found:
        inner = number.start, number.end
        signed = with_signs(text, *inner)
        first, last = signed if with_sign else inner
        own = adapted(text[slice(*inner)], languages, is_amount=signed != inner)
        shown = text[first : number.start] + own + text[number.end : last]
        raw = "".join(block.raw[start + first : start + last]) if shown == text[first:last] else block.escape(shown)
        items.append(Item(start + first, start + last, shown, raw))
    return items


def corrected(
    sentence: AlignedSentence, numbers_lacked: Sequence[Item], surplus: Counter[str], taken: Sequence[Item], code: str
) -> AlignedSentence | None:
    """Put numbers that a translation lacks in place of the surplus ones that it has, outside items taken already.

    Returns:
        The translation; ``None`` if it is not certain which number stands for which.
    """
    text = target_without(sentence, taken)
    spans = [number[:2] for number in numbers(text, code) if number.groups & surplus]
    paired = _pairs(sentence, numbers_lacked, spans)
    for item, span in sorted(paired.items(), key=lambda pair: -pair[1][0]):
        sentence = put_over(sentence, item, item.text, *span)
    return sentence if paired else None


def target_without(sentence: AlignedSentence, items: Sequence[Item]) -> str:
    """The text of a translation, with spaces in place of items."""
    texts = {item.text.casefold() for item in items}
    return "".join(
        word.space + (" " * len(word.text) if word.is_item and word.text.casefold() in texts else word.text)
        for word in sentence.words
    )


def _pairs(sentence: AlignedSentence, items: Sequence[Item], spans: Sequence[Span]) -> Mapping[Item, Span]:
    """Which item belongs to which span, if there are as many, and each span attends most to another item."""
    if not items or len(items) != len(spans):
        return {}
    words = [sentence.word_at(start) for start, _ in spans]
    attention = np.array([sentence.shares(item.start, item.end)[words] for item in items])  # (items, spans)
    best = {items[index]: span for index, span in zip(attention.round(6).argmax(0), spans, strict=True)}
    return best if len(best) == len(items) else {}
