"""SentencePiece models trained on names from CLDR, and the text to compare tokenizers on."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sentencepiece
from babel import Locale, localedata

from edgeformer.importers.tokenizers import sentencepiece_tokenizer

TRAINING: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram-nfkc-suffix": {"normalization_rule_name": "nfkc", "treat_whitespace_as_suffix": True},
    "unigram-casefold-bytes": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True},
    "unigram-identity-symbols": {
        "normalization_rule_name": "identity",
        "user_defined_symbols": ["<sep>", "an", "é", "\u0301k", "ana"],
        "split_digits": True,
    },
    "unigram-spaces": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "unigram-phrases": {"split_by_whitespace": False, "remove_extra_whitespaces": False},
    "bpe": {"model_type": "bpe"},
    "bpe-identity-bytes-symbols": {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "user_defined_symbols": ["<sep>", "an", "é", "\u0301k", "ana"],
        "remove_extra_whitespaces": False,
    },
    "bpe-suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
    "bpe-phrases": {"model_type": "bpe", "split_by_whitespace": False, "add_dummy_prefix": False},
}
"""Settings of SentencePiece's trainer."""

EDGE_CASES = [
    "",
    " ",
    "   ",
    "\u3000\u00a0",
    "  leading, trailing  ",
    "several   spaces \t\n\r\n tabs",
    "\0",
    " \0",
    "a\0b\x01\x7f\x85c",
    "\u2581",
    " \u2581 \u2581typed\u2581 \u2581",
    "ẹ́ Yorùbá \u1eb9\u0301 e\u0323\u0301",
    "ﾊﾟﾝｶﾞ ｳﾞｧ",
    "👩\u200d👩\u200d👧\u200d👦 🏴\U000e0067\U000e0062\U000e007f 🇫🇷",
    "\ufe0f \ufe0e a\ufe0f",
    "Ｆｕｌｌ－ｗｉｄｔｈ　１２３",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 한글",
    "שלום עולם مرحبا \u202eabc\u202c",
    "\u0301 \u0308\u0301leading mark",
    "\u0301k é <sep> anana bananas<sep><sep> ＜sep＞",
    "ﬁ ﷺ ½ ㎏ Ⅷ ǆ ẞ İ ŉ ⅲ",
    "\u00a8 \u00b4a\u00a8",
    "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "</s><s><unk><pad> <0x0A> <0xFF><0x> </s",
    "中文字符 日本語テキスト ไทย ភាសា ልሳን",
    "…… ...... aaaaaaa ababababa -------",
    "x" * 3000,
    "word " * 500,
]


@cache
def lines(every: int = 1) -> Sequence[str]:
    """Names of territories, languages and months in all locales of CLDR without a territory, or in each n-th."""
    names = [name for name in sorted(localedata.locale_identifiers()) if "_" not in name]
    return sorted(set(_names(names[::every])))


def _names(locales: Sequence[str]) -> Iterator[str]:
    for name in locales:
        locale = Locale.parse(name)
        yield from locale.territories.values()
        yield from list(locale.languages.values())[:200]
        for months in locale.months["format"].values():
            yield from months.values()


@cache
def model(name: str, every: int = 30) -> bytes:
    """Train a model with the settings of this name on each n-th locale; of all locales, one with 8,000 pieces."""
    return train(lines(every)[::2], **TRAINING[name], **({"vocab_size": 8000} if every == 1 else {}))


def tokenizer_file(model: bytes, vocabulary: Sequence[str] | None = None) -> dict[str, Any]:
    """The tokenizer file of a model, as importers write it, whose ids are those of its pieces or of a vocabulary."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.model")
        path.write_bytes(model)
        tree: dict[str, Any] = json.loads(sentencepiece_tokenizer(path))
    return tree | ({} if vocabulary is None else {"vocabulary": [*vocabulary]})


def train(text: Sequence[str], **settings: Any) -> bytes:
    """Train a model, and return the content of its file."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=file,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 1200, "character_coverage": 0.98, "hard_vocab_limit": False, **settings},
    )
    return file.getvalue()
