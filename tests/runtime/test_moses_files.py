"""Tokenizer files for sacremoses and subword-nmt: what they may have, and hostile ones."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from edgeformer_runtime.bundle.tokenizer_file import checked_tokenizer
from edgeformer_runtime.errors import BundleError, ConfigError, InputError
from edgeformer_runtime.limits import MAX_MOSES_CHARACTERS
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, rehash
from tests.robustness.mutations import CHANGES, MUTATED, mutated

pytest.importorskip("sacremoses", reason="the extra `moses` is not installed")

Tree = dict[str, Any]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
WORDS = ["a", "b", "ab", "ab@@", "c", "&lt;", "&gt;", "/", "s", ".", "'", "-", "li", "a'", "lang", "&apos;s"]
MERGES = ["a b", "a b</w>", "l t", "& lt", "&lt ;</w>", "g t", "& gt", "&gt ;</w>", "l a", "n g</w>", "la ng</w>"]
TEXTS = ["ab abc <a> b.", "</s><unk> lang", "", " \0 \u2028", 'it\'s "x" 你好 😀', "@@ a@@ b"]


def tree(**fields: Any) -> Tree:
    """A file with as many entries as the committed bundles have."""
    names = [*SPECIAL, *WORDS]
    return {
        "kind": "moses",
        "version": "1.0",
        "language": "en",
        "vocabulary": [*names, *(f"q{number}" for number in range(302 - len(names)))],
        "unk_token": "<unk>",
        "special_tokens": ["<pad>", "<s>", "</s>"],
        "codes_version": "0.2",
        "merges": [pair.split() for pair in MERGES],
        **fields,
    }


def read(content: Tree) -> Tokenizer:
    return Tokenizer.from_content(checked_tokenizer(json.dumps(content).encode("utf-8", "surrogatepass")), "t.json")


def test_text_is_segmented_and_restored() -> None:
    tokenizer = read(tree())
    assert tokenizer.tokens(tokenizer.encode("ab abc <a>")) == ["ab", "ab@@", "c", "&lt;", "a", "&gt;"]
    assert tokenizer.decode(tokenizer.encode("ab abc <a> b.")) == "ab abc < a > b."
    assert tokenizer.encode_batch(["", "  "]) == [[], []]
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)


def test_special_tokens_in_text_are_text() -> None:
    tokenizer = read(tree(special_tokens=["<pad>", "<s>", "</s>", "lang", "ab"]))
    assert tokenizer.tokens(tokenizer.encode("</s> lang ab")) == ["&lt;", "/", "s", "&gt;", "<unk>", "<unk>"]
    assert tokenizer.decode([3, *tokenizer.encode("</s>"), 2, 0, WORDS.index("ab") + 4]) == "< / s >"


def test_tokens_that_the_text_lacks_have_no_characters() -> None:
    tokenizer = read(tree())
    assert tokenizer.tokens(tokenizer.encode("abc <b")) == ["ab@@", "c", "&lt;", "b"]
    assert tokenizer.spans("abc <b") == [(0, 2), (2, 3), (3, 3), (5, 6)]
    assert tokenizer.spans("b" + " " * 16 + "a")[1] == (17, 18)
    assert tokenizer.spans("b" + " " * 17 + "a")[1] == (1, 1)


def test_czech_words_that_sacremoses_fails_at_are_restored() -> None:
    tokenizer = read(tree(language="cs"))
    ids = [len(SPECIAL) + WORDS.index(word) for word in ("a'", "-", "li")]
    assert tokenizer.decode(ids) == "a' - li"


def test_long_texts_are_refused() -> None:
    tokenizer = read(tree(language="de"))
    assert all(tokenizer.encode_batch([character * MAX_MOSES_CHARACTERS for character in "a."]))
    with pytest.raises(InputError, match="may have at most 8,192; split it"):
        tokenizer.encode("a" * (MAX_MOSES_CHARACTERS + 1))
    with pytest.raises(InputError, match="lone surrogate"):
        tokenizer.encode("\ud800")


def test_a_bundle_with_such_a_tokenizer_translates(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    size = Translator.open(bundle, threads=1).source_tokenizer.vocab_size
    names = [*SPECIAL, *WORDS]
    vocabulary = [*names, *(f"q{number}" for number in range(size - len(names)))]
    (bundle / "tokenizer.json").write_text(json.dumps(tree(vocabulary=vocabulary)), encoding="utf-8")
    translator = Translator.open(rehash(bundle), threads=1)
    (translation,) = translator.translate(["ab </s>"])
    assert translator.source_tokenizer.tokens(translation.source.ids) == ["ab", "&lt;", "/", "s", "&gt;", "</s>"]
    assert translation.text == translator.target_tokenizer.decode(translation.best.ids)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    monkeypatch.delitem(sys.modules, "edgeformer_runtime.tokenizer.moses", raising=False)
    with pytest.raises(ConfigError, match=r"needs `sacremoses`: pip install 'edgeformer\[moses\]'"):
        read(tree())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.update(surprise=1), "surprise"),
        (lambda content: content.update(version="2.0"), "version"),
        (lambda content: content.update(codes_version="0.3"), "codes_version"),
        (lambda content: content.update(language="x" * 65), "length <= 64"),
        (lambda content: content.pop("merges"), "merges"),
        (lambda content: content.update(merges=[]), "length >= 1"),
        (lambda content: content.update(merges=[["a", ""]]), "length >= 1"),
        (lambda content: content.update(merges=[["a", "b", "c"]]), "length 2"),
        (lambda content: content.update(merges=[["a", "b c"]]), "regex"),
        (lambda content: content.update(merges=[["a", "b\n"]]), "regex"),
        (lambda content: content.update(vocabulary=[*SPECIAL, "a", "a"]), "an entry is duplicated"),
        (lambda content: content.update(vocabulary=[*SPECIAL, "a" * 129]), "length <= 128"),
        (lambda content: content.update(special_tokens=["absent"]), "a special token is not in the vocabulary"),
        (lambda content: content.update(unk_token="absent"), "a special token is not in the vocabulary"),
    ],
)
def test_what_contradicts_itself_is_refused(change: Callable[[Tree], object], words: str) -> None:
    content = tree()
    change(content)
    with pytest.raises(BundleError, match=r"Tokenizer file `t\.json` is damaged") as caught:
        read(content)
    assert words in str(caught.value)


@MUTATED
@given(changes=CHANGES)
def test_mutated_files_are_refused_or_can_be_used(changes: list[tuple[int, str, Any]]) -> None:
    with contextlib.suppress(BundleError, ValueError, msgspec.DecodeError, RecursionError):
        tokenizer = read(mutated(tree(), changes))
        for ids in tokenizer.encode_batch(TEXTS):
            tokenizer.decode(ids)
