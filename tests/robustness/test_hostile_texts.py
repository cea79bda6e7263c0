"""Hostile texts: none may become a special token, and each is translated or refused, in little memory and time."""

from __future__ import annotations

import sys
import time
from functools import partial
from random import Random

import pytest

from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.limits import MAX_TEXT_CHARACTERS
from edgeformer_runtime.translator import Translator
from tests.amounts import cases
from tests.robustness.outcomes import Outcome, Result, measured
from tests.store import COMMITTED, CPU_PRECISIONS

if not sys.platform.startswith("linux"):
    pytest.skip("limits memory as only Linux can", allow_module_level=True)

MEMORY, SECONDS = 1024, 20.0
"""MiB that memory may rise by, and seconds of processor time that a text may take."""
LONG_EVERY = 50
"""One text in so many is a single line of about a million characters."""
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>", "[CLS]", "<|endoftext|>", "\u2581</s>", "\u0120</s>", "<", "/s>")


def hostile_text(number: int) -> str:
    """A text: pieces of special tokens, of Unicode's corners and of plain words, in any order."""
    random = Random(number)
    if number % LONG_EVERY == LONG_EVERY - 1:
        piece = _piece(random) or "a"
        return (piece * (MAX_TEXT_CHARACTERS // len(piece) + 2))[: MAX_TEXT_CHARACTERS - random.randint(-1, 2)]
    return random.choice(("", " ", "\n")).join(_piece(random) for _ in range(random.randint(0, 30)))


def _piece(random: Random) -> str:
    kind = random.randrange(8)
    if kind == 0:
        return random.choice(SPECIAL)
    if kind == 1:
        return chr(random.choice((random.randrange(32), 127, random.randrange(128, 160), 0x2028, 0xFEFF)))
    if kind == 2:
        return chr(random.randrange(0xD800, 0xE000)) if random.random() < 0.1 else "\ufffd"
    if kind == 3:
        return "e" + "".join(chr(random.randrange(0x300, 0x370)) for _ in range(random.choice((1, 5, 500))))
    if kind == 4:
        return "".join(chr(random.randrange(0x10000, 0x1F000)) for _ in range(random.randint(1, 5)))
    if kind == 5:
        return random.choice("\u202e\u200b\u200d\u2066\u00ad\u3000\u00a0\ufdfa\u0130\u1e9e")
    if kind == 6:
        return random.choice(("'", "n't", "l'", "''", "9" * 40, "\u0661\u0662", "a" * 200))
    return random.choice(("The", "old", "dog", "turns", "2", "times", "."))


def translated(translator: Translator[BundleSession], text: str) -> Result:
    """Translate a text, and look for special tokens where text put them."""
    special = translator.bundle.manifest.special
    forbidden = {special.pad, special.bos, special.eos}
    (translation,) = translator.translate([text], max_length=4, beam_size=2)
    source = translation.source.ids
    if forbidden.intersection(source[:-1]) or source[-1:] not in ((), (special.eos,)):
        return Result(Outcome.FORGED, f"special tokens among the source ids {source[:50]}")
    if any(forbidden.intersection(hypothesis.ids) for hypothesis in translation.hypotheses):
        return Result(Outcome.FORGED, "special tokens in the translation")
    return Result(Outcome.SAME)


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_texts_are_translated_or_refused(precision: str) -> None:
    with Translator.open(COMMITTED / precision, threads=1) as translator:
        for number in range(cases(LONG_EVERY - 1, 300)):
            text, begin = hostile_text(number), time.process_time()
            result = measured(partial(translated, translator, text), MEMORY)
            assert not result.outcome.is_defect, f"{number}, {text[:200]!r}: {result.detail}"
            assert time.process_time() - begin < SECONDS, number


def test_hostile_texts_have_what_they_should() -> None:
    texts = [hostile_text(number) for number in range(6 * LONG_EVERY)]
    for piece in ("</s>", "\u202e", "\x1b"):
        assert any(piece in text for text in texts)
    assert any("\ud800" <= char < "\ue000" for text in texts for char in text)
    assert sum(len(text) > 2**20 - 10 for text in texts) == 6
