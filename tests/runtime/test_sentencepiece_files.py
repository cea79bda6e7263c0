"""SentencePiece models as tokenizer files of bundles: what they may have, and hostile ones."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sentencepiece", reason="the extra `sentencepiece` is not installed")
pytest.importorskip("babel", reason="the text to train on is that of CLDR")

from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.errors import BundleError, ConfigError
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translator import Translator
from tests import spm
from tests.bundles import copy_of, rehash
from tests.commands import problems

Tree = dict[str, Any]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
SETTINGS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "vocab_size": 300, "hard_vocab_limit": True}
"""As many pieces as the committed bundles have tokens, and the same special ones."""


@cache
def content(vocabulary: tuple[str, ...] | None = None, **settings: Any) -> str:
    """The file of a model whose ids are those of its pieces, or of a vocabulary."""
    return json.dumps(spm.tokenizer_file(spm.train(spm.lines(60)[::2], **{**SETTINGS, **settings}), vocabulary))


OWN = content()
"""A model whose ids are those of its pieces."""
OTHER = content((*SPECIAL, "\u2581G", "a", "n", "foreign", "\u2581foreign"), model_type="bpe")
"""A model with a vocabulary of its own."""


def read(data: str | bytes, text: TextFormat | None = None) -> Tokenizer:
    return Tokenizer.from_content(data, "t.json", text or TextFormat())


def test_a_bundle_with_such_a_tokenizer_translates(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "tokenizer.json").write_text(OWN, encoding="utf-8")
    translator = Translator.open(rehash(bundle), threads=1)
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
    monkeypatch.delitem(sys.modules, "edgeformer_runtime.tokenizers.sentencepiece", raising=False)
    with pytest.raises(ConfigError, match=r"needs `sentencepiece`: pip install 'edgeformer\[sentencepiece\]'"):
        read(OWN)


def rules(replacement: bytes, *, trie: bytes = bytes(1024)) -> Tree:
    """A normalizer with a replacement, which no character leads to."""
    charsmap = struct.pack("<I", len(trie)) + trie + replacement + b"\0"
    return {"charsmap": base64.b64encode(charsmap).decode()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree.clear(), "missing required field"),
        (lambda tree: tree.update(kind="moses"), "Invalid value 'moses'"),
        (lambda tree: tree.update(model="word"), "Invalid enum value 'word'"),
        (lambda tree: tree.update(surprise=1), "surprise"),
        (lambda tree: tree["scores"].pop(), "a score for each piece"),
        (lambda tree: tree["scores"].__setitem__(5, 1e39), "at `$.scores[5]`"),
        (lambda tree: tree["control"].append(300), "a piece that does not exist"),
        (lambda tree: tree["control"].append(-1), "at `$.control["),
        (lambda tree: tree["control"].remove(3), "not a control piece"),
        (lambda tree: tree.update(byte=[5]), "byte piece a is invalid"),
        (lambda tree: tree["pieces"].__setitem__(5, "x" * 129), "length <= 128"),
        (lambda tree: tree["pieces"].__setitem__(5, ""), "length >= 1"),
        (lambda tree: tree["pieces"].__setitem__(5, tree["pieces"][6]), "already defined"),
        (lambda tree: tree["pieces"].extend(["x"] * 2**20), "length <= 1048576"),
        (lambda tree: tree.update(normalizer=rules(b"x" * 65)), "replaces a character with 65 bytes"),
        (lambda tree: tree.update(denormalizer=rules(b"x" * 65)), "replaces a character with 65 bytes"),
        (lambda tree: tree.update(normalizer=rules(b"x" * 2**22)), "length <= 4194304"),
        (lambda tree: tree.update(normalizer=rules(b"x", trie=bytes(6))), "Trie"),
        (lambda tree: tree.update(normalizer=rules(b"x", trie=struct.pack("<256I", *[2**30] * 256))), "is invalid"),
        (lambda tree: tree.update(normalizer={"charsmap": "?"}), "at `$.normalizer.charsmap`"),
        (lambda tree: tree.update(unk_surface="x" * 65), "length <= 64"),
        (lambda tree: tree.update(vocabulary=["a", "a"]), "duplicated"),
    ],
)
def test_damaged_and_hostile_files_are_refused(change: Callable[[Tree], object], words: str) -> None:
    tree = json.loads(OWN)
    change(tree)
    with pytest.raises(BundleError, match=r"Tokenizer file `t\.json` is damaged, .*\. Export the bundle") as caught:
        read(json.dumps(tree))
    assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_no_text_is_encoded_to_a_special_token(kind: str) -> None:
    settings: Any = {"model_type": kind, "control_symbols": "\u2603", "user_defined_symbols": "<2xx>"}
    data = content(**settings)
    tokenizer = read(data, TextFormat(languages={"xx": "\u2603"}))
    assert tokenizer.token_id("\u2603") not in tokenizer.encode("a\u2603b \u2603")
    for name in ("<2xx>", "a"):
        with pytest.raises(BundleError, match="a special token is not a control piece"):
            read(data, TextFormat(languages={"xx": name}))
    other = read(content((*SPECIAL, "<2xx>", "a"), **settings), TextFormat(languages={"xx": "<2xx>", "yy": "a"}))
    assert {4, 5}.isdisjoint(other.encode("<2xx> banana a"))
    with pytest.raises(BundleError, match=r"must have special tokens `<2yy>`"):
        read(data, TextFormat(eos="<2yy>"))


def damaged(data: str, rng: random.Random) -> bytes:
    """Change a few characters of rules, numbers or pieces."""
    tree = json.loads(data)
    charsmap = bytearray(base64.b64decode(tree["normalizer"]["charsmap"]))
    for _ in range(rng.choice([0, 1, 4, 50, 1000])):
        charsmap[rng.randrange(rng.choice([8, 4096, len(charsmap)]))] = rng.randrange(256)
    tree["normalizer"]["charsmap"] = base64.b64encode(charsmap[: rng.choice([None, rng.randrange(3000)])]).decode()
    changed = bytearray(json.dumps(tree, ensure_ascii=False).encode("utf-8"))
    for _ in range(rng.choice([0, 0, 1, 4])):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
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


@pytest.mark.parametrize("count", [15, pytest.param(1500, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_can_be_used(count: int) -> None:
    code = f"from {__name__} import open_damaged; open_damaged({count})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
