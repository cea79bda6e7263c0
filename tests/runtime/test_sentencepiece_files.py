"""SentencePiece models as tokenizer files of bundles: what they may have, and hostile ones."""

from __future__ import annotations

import contextlib
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sentencepiece", reason="the extra `sentencepiece` is not installed")
pytest.importorskip("babel", reason="the text to train on is that of CLDR")

from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.errors import BundleError, ConfigError
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.tokenizer.sentencepiece_file import read_vocabulary, with_vocabulary
from edgeformer_runtime.translator import Translator
from tests import spm
from tests.bundles import copy_of, edit_manifest, rehash
from tests.commands import problems

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
SETTINGS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "vocab_size": 300, "hard_vocab_limit": True}
"""As many pieces as the committed bundles have tokens, and the same special ones."""


def model(**settings: object) -> bytes:
    return spm.train(spm.lines(60)[::2], **{**SETTINGS, **settings})


OWN = model()
"""A model whose ids are those of its pieces."""
OTHER = with_vocabulary(model(model_type="bpe"), [*SPECIAL, "\u2581G", "a", "n", "foreign", "\u2581foreign"])
"""A model with a vocabulary of its own."""


def read(data: bytes, text: TextFormat | None = None) -> Tokenizer:
    return Tokenizer.from_content(data, "t.spm", text or TextFormat())


def varint(value: int) -> bytes:
    """Seven bits each, the lowest first."""
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def rules(replacement: bytes, *, trie: bytes = bytes(1024)) -> bytes:
    """A normalizer with a replacement, which no character leads to."""
    return field(3, field(2, struct.pack("<I", len(trie)) + trie + replacement + b"\0"))


def packed(data: bytes, bundle: Path) -> Path:
    """Put a model into a bundle in place of its tokenizer."""
    (bundle / "tokenizer.json").unlink()
    (bundle / "tokenizer.spm").write_bytes(data)

    def rename(tree: dict[str, Any]) -> None:
        tree["tokenizers"] |= {"source": "tokenizer.spm", "target": "tokenizer.spm"}
        tree["files"]["tokenizer.spm"] = tree["files"].pop("tokenizer.json")

    return rehash(edit_manifest(bundle, rename))


def test_a_bundle_with_such_a_tokenizer_translates(small_bundle: Path, tmp_path: Path) -> None:
    bundle = packed(OWN, copy_of(small_bundle, tmp_path))
    translator = Translator.open(bundle, threads=1)
    (translation,) = translator.translate(["Ghana </s>"])
    tokens = translator.source_tokenizer.tokens(translation.source.ids)
    assert (tokens.count("</s>"), tokens[-1]) == (1, "</s>")
    assert translation.text == translator.target_tokenizer.decode(translation.best.ids)
    assert any("does not fit the examples" in problem for problem in problems(bundle))


def test_names_that_the_model_lacks_are_decoded() -> None:
    tokenizer = read(OTHER)
    assert {*tokenizer.tokens(tokenizer.encode("G foreign"))} == {"\u2581G", "n", "<unk>"}
    assert tokenizer.decode([4, 5, 7, 8, 3]) == "Gaforeign foreign"
    assert tokenizer.decode([8, 5, 300]) == "foreigna"  # a model may have more rows than its tokenizer
    assert tokenizer.vocab_size == 9
    with pytest.raises(ValueError, match="between 0 and 8"):
        tokenizer.tokens([9])


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    monkeypatch.delitem(sys.modules, "edgeformer_runtime.tokenizer.sentencepiece", raising=False)
    with pytest.raises(ConfigError, match=r"needs `sentencepiece`: pip install 'edgeformer\[sentencepiece\]'"):
        read(OWN)


def test_files_of_earlier_versions_are_refused() -> None:
    content = '{"version":"1.0","normalizer":{"type":"Sequence","normalizers":[{"type":"Precompiled"}]}}'
    with pytest.raises(BundleError, match="by an earlier version; import the model"):
        Tokenizer.from_content(content, "t.json")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "unk is not defined"),
        (b"{}", "not a SentencePiece model"),
        (OWN[:-1], "not a SentencePiece model"),
        (OWN + b"\x1b", "not a SentencePiece model"),  # a group
        (OWN + b"\x0a" + b"\xff" * 9 + b"\x01", "not a SentencePiece model"),
        (OWN + b"\x9a\x80\x80\x80\x10" + rules(b"x" * 1000)[1:], "not a SentencePiece model"),  # 3 above bit 31
        (OWN + field(1, field(1, b"x" * 600)), "a piece of more than 512 bytes"),
        pytest.param(OWN + b"\x0a\x80\x00" * 2**20, "more than 1,048,576 pieces", marks=pytest.mark.slow),
        (OWN + rules(b"x" * 65), "replaces a character with 65 bytes"),
        (OWN + field(5, rules(b"x" * 65)[3:]), "replaces a character with 65 bytes"),
        (OWN + rules(b"x" * 2**22), "more than 4,194,304 bytes"),
        (OWN + rules(b"x", trie=bytes(6)), "Trie"),
        (OWN + rules(b"x", trie=struct.pack("<256I", *[2**20 << 10] * 256)), "is invalid"),
        (OWN + field(2, field(44, b"x" * 65)), "unknown tokens to more than 64 bytes"),
        (with_vocabulary(OWN, ["a", "a"]), "duplicated"),
        (with_vocabulary(OWN, ["a"] * (2**20 + 1)), "more than 1,048,576"),
        (field(200, b"\xff") + OWN, "can't decode"),
    ],
)
def test_damaged_and_hostile_files_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(BundleError, match=r"Tokenizer file `t\.spm` is damaged: .*\. Export the bundle") as caught:
        read(data)
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_no_text_is_encoded_to_a_special_token(kind: str) -> None:
    data = model(model_type=kind, control_symbols=["\u2603"], user_defined_symbols=["<2xx>"])
    tokenizer = read(data, TextFormat(languages={"xx": "\u2603"}))
    assert tokenizer.token_id("\u2603") not in tokenizer.encode("a\u2603b \u2603")
    for name in ("<2xx>", "a"):
        with pytest.raises(BundleError, match="a special token is not a control piece"):
            read(data, TextFormat(languages={"xx": name}))
    other = read(with_vocabulary(data, [*SPECIAL, "<2xx>", "a"]), TextFormat(languages={"xx": "<2xx>", "yy": "a"}))
    assert {4, 5}.isdisjoint(other.encode("<2xx> banana a"))
    with pytest.raises(BundleError, match=r"must have special tokens `<2yy>`"):
        read(data, TextFormat(eos="<2yy>"))


def test_the_vocabulary_may_be_anywhere_in_the_file() -> None:
    names = ["</s>", "<unk>", "<s>", "<pad>", "", "x" * 1000]
    extra = with_vocabulary(b"", names)
    assert read_vocabulary(OWN) is None
    assert read_vocabulary(extra + OWN) == read_vocabulary(OWN + extra) == names
    with pytest.raises(ValueError, match="NUL"):
        with_vocabulary(OWN, ["a\0"])


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut out or repeated, most often behind the pieces, where the rules are."""
    changed, start = bytearray(data), rng.choice([0, data.rindex(b"nmt_nfkc")])
    match rng.randrange(4):
        case 0:
            del changed[rng.randrange(start, len(data)) :]
        case 1:
            first = rng.randrange(start, len(data))
            changed[first:first] = data[first : first + rng.randrange(3000)]
        case _:
            for _ in range(rng.choice([1, 4, 50, 1000])):
                changed[rng.randrange(start, len(changed))] = rng.randrange(256)
    return bytes(changed)


def open_damaged(count: int) -> None:
    """Open damaged files; whatever happens to them, the process lives on."""
    accepted = 0
    for number in range(count):
        rng = random.Random(number)
        with contextlib.suppress(BundleError):
            tokenizer = read(damaged(rng.choice([OWN, OTHER]), rng))
            accepted += 1
            for text in spm.EDGE_CASES[:24]:
                tokenizer.decode(tokenizer.encode(text))
                tokenizer.pieces(text)
    assert 0 < accepted < count


@pytest.mark.parametrize("count", [200, pytest.param(1500, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_can_be_used(count: int) -> None:
    code = f"from {__name__} import open_damaged; open_damaged({count})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
