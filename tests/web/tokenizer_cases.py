"""Cases of tokenizers that Python and TypeScript share: ids, spans and decoded text of every kind of tokenizer file.

Usage: ``python -m tests.web.tokenizer_cases``, from the root of the repository, whenever a tokenizer changes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.tokenizers.segmenter import Span
from tests import spm
from tests.conftest import ROOT
from tests.web.rules import as_lines

FOLDER = ROOT / "tests" / "web" / "cases"
FILE = FOLDER / "tokenizers.json"
"""Where the cases are."""
LINES = [
    *(line for line in spm.EDGE_CASES if len(line) < 1000),
    "A dog runs near the sea; it doesn't bark, does it?",
    "L'homme n'aime pas aujourd\u2019hui qu'on l'appelle \u00ab M. Dupont \u00bb.",
    "Die Straße ist 1.250,50 m lang – größer als ½ km²!",
    "They've said: \u201cI'm 42 years old, you aren't.\u201d",
    "x" * 200,
    "word " * 50,
]
SPECIAL = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "vocab_size": 400, "hard_vocab_limit": False}
OWN = {
    "bpe": {"model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["<sep>", "an", "ana"]},
    "suffix": {"treat_whitespace_as_suffix": True, "user_defined_symbols": ["<sep>", "an", "é"]},
    "spaces": {"model_type": "bpe", "remove_extra_whitespaces": False, "add_dummy_prefix": False},
}
"""Settings of small models, without character rules, which are large."""
PATHS = (
    *(f"tests/web/cases/{name}.json" for name in (*OWN, "vocabulary", "word", "unigram", "nmt_nfkc")),
    "tests/runtime/bundles/int8/tokenizer.json",
    "models/en-fr/tokenizer.json",
)
"""Tokenizer files: one of each kind."""


def tokenizer(path: str) -> Tokenizer:
    """Read a file as those of bundles."""
    return Tokenizer.from_file(ROOT / path, text_format(path))


def text_format(path: str) -> TextFormat:
    """Names of the special tokens of a file."""
    if "nmt_nfkc" in path:
        return TextFormat(pad="</s>", bos="</s>", suppress=("<unk>",))
    return TextFormat()


def in_utf16(text: str, spans: Sequence[Span]) -> list[list[int]]:
    """Spans in the units of JavaScript."""
    offsets = [0, *accumulate(1 + (ord(character) > 0xFFFF) for character in text)]
    return [[offsets[start], offsets[end]] for start, end in spans]


def cases() -> list[dict[str, Any]]:
    """All cases, by file."""
    found = []
    for path in PATHS:
        own = tokenizer(path)
        lines = [
            {
                "text": text,
                "ids": own.encode(text),
                "spans": in_utf16(text, own.spans(text)),
                "decoded": own.decode(own.encode(text)),
            }
            for text in LINES
        ]
        special = text_format(path)
        names = {"pad": special.pad, "unk": special.unk, "bos": special.bos, "eos": special.eos}
        ids = {name: own.token_id(token) for name, token in names.items()}
        found.append(
            {
                "path": path,
                "size": own.vocab_size,
                "text": {**names, "suppress": special.suppress},
                "special": {**ids, "suppress": own.ids(special.suppress)},
                "lines": lines,
            }
        )
    return found


def content() -> str:
    """The content of the file."""
    return as_lines(cases())


def make_models() -> None:
    """Train the small models of :data:`OWN` and those that are not SentencePiece's, where they are missing, and convert
    one of Marian, which has SentencePiece's usual rules for characters."""
    from edgeformer.config import TokenizerConfig
    from edgeformer.data.vocabulary import train_tokenizer

    text = [*spm.lines(60)[::2], *LINES[-6:]] * 2
    for name, settings in OWN.items():
        if not (FOLDER / f"{name}.json").exists():
            own = spm.train(text, normalization_rule_name="identity", **{**SPECIAL, **settings})
            write(name, spm.tokenizer_file(own))
    names = ["<pad>", "<unk>", "<s>", "</s>", "\u2581", "a", "an", "e", "n", "s", "foreign", "\u2581foreign", "日本"]
    write("vocabulary", {**json.loads((FOLDER / "bpe.json").read_bytes()), "vocabulary": names})
    write("nmt_nfkc", spm.tokenizer_file((ROOT / "tests/importers/marian/ssru/vocab.spm").read_bytes()))
    for kind in ("word", "unigram"):
        if not (FOLDER / f"{kind}.json").exists():
            config = TokenizerConfig(kind=kind, vocab_size=300, lowercase=kind == "word", add_prefix_space=True)
            write(kind, json.loads(train_tokenizer(text, config).to_str()))


def write(name: str, tree: dict[str, Any]) -> None:
    """Write a tokenizer file."""
    content = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.json").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    make_models()
    FILE.write_text(content(), encoding="utf-8")
