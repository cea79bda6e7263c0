"""Tokenizer files of bundles: the components they may have, and vocabularies that are not the model's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.config import TokenizerConfig
from edgeformer.data.vocabulary import train_tokenizer
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.tokenizers.tokenizer_file import read_tokenizer_file
from edgeformer_runtime.translator import Translator
from tests.amounts import examples
from tests.bundles import copy_of, rehash
from tests.commands import problems
from tests.robustness.mutations import random_json

Tree = dict[str, Any]
TEXTS = ["The dog runs 12 times, doesn't it?", "l'homme", "\u00e9 \U0001f600 </s>", "", " "]


def trained(**settings: Any) -> Tree:
    library = train_tokenizer(TEXTS * 3, TokenizerConfig(vocab_size=300, **settings))
    tree: Tree = json.loads(library.to_str())
    return tree


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
@pytest.mark.parametrize("split", ["punctuation", "space"])
@pytest.mark.parametrize("more", [{}, {"split_digits": True, "lowercase": True}], ids=["plain", "digits-lowercase"])
def test_every_tokenizer_that_is_trained_is_allowed_and_unchanged(kind: str, split: str, more: Tree) -> None:
    tree = trained(kind=kind, split=split, **more)
    assert json.loads(msgspec.json.encode(read_tokenizer_file(json.dumps(tree)))) == tree


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 2**20}
REGEX = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree.update(normalizer=REPLACE), "Invalid value 'Replace' - at `$.normalizer.type`"),
        (lambda tree: tree.update(normalizer={"type": "Prepend", "prepend": "b" * 65}), "Invalid enum value 'bbb"),
        (
            lambda tree: tree.update(normalizer={"type": "Sequence", "normalizers": [REPLACE]}),
            "Invalid value 'Replace' - at `$.normalizer.normalizers[0].type`",
        ),
        (
            lambda tree: tree.update(
                normalizer={"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]}
            ),
            "Invalid value 'Sequence'",
        ),
        (
            lambda tree: tree.update(normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 17}),
            "`array` of length <= 16",
        ),
        (lambda tree: tree.update(pre_tokenizer=REGEX), "Invalid enum value '(a+)+$'"),
        (lambda tree: tree["pre_tokenizer"]["pretokenizers"].append(REGEX), "Invalid enum value '(a+)+$'"),
        (lambda tree: tree["model"].update(dropout=0.5), "at `$.model.dropout`"),
        (lambda tree: tree["model"].update(type="WordPiece"), "at `$.model.type`"),
        (lambda tree: tree["model"].update(surprise=1), "surprise"),
        (lambda tree: tree.update(truncation={"max_length": 2}), "at `$.truncation`"),
        (lambda tree: tree.update(padding={"strategy": {"Fixed": 10**9}}), "at `$.padding`"),
        (lambda tree: tree.update(post_processor={"type": "ByteLevel"}), "at `$.post_processor`"),
        (lambda tree: tree["added_tokens"].extend(tree["added_tokens"] * 300), "`array` of length <= 1024"),
        (lambda tree: tree["added_tokens"][0].update(content="x" * 65), "`str` of length <= 64"),
        (lambda tree: tree["added_tokens"][0].update(id=2**40), "at `$.added_tokens[0].id`"),
        (lambda tree: tree.clear(), "missing required field"),
    ],
)
def test_what_could_run_without_bound_is_refused(
    small_bundle: Path, tmp_path: Path, change: Callable[[Tree], object], words: str
) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    tree = json.loads((bundle / "tokenizer.json").read_bytes())
    change(tree)
    (bundle / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(BundleError, match=r"Tokenizer file `.*tokenizer\.json` is damaged, or has a part") as caught:
        Translator.open(rehash(bundle), threads=1)
    assert words in str(caught.value)


def test_a_key_that_is_there_twice_hides_nothing() -> None:
    """Of two values, the library would take the first here, and other readers take the last."""
    content = json.dumps(trained())
    assert '"normalizer": null' in content
    twice = content.replace('"normalizer": null', f'"normalizer": {json.dumps(REPLACE)}, "normalizer": null')
    with pytest.raises(msgspec.ValidationError, match="Replace"):
        read_tokenizer_file(twice)
    other = content.replace('"normalizer": null', '"normalizer": {"type": "Lowercase"}, "normalizer": null')
    assert msgspec.json.encode(read_tokenizer_file(other)).count(b"normalizer") == 1


def test_a_word_level_vocabulary_without_its_unknown_token_is_an_error() -> None:
    tree = trained(kind="word")
    tree["model"]["unk_token"] = "[unknown]"
    tokenizer = Tokenizer.from_content(json.dumps(tree), "t.json")
    with pytest.raises(BundleError, match="The tokenizer cannot encode a text: WordLevel error"):
        tokenizer.encode("unseen")


def test_a_permuted_vocabulary_is_found_by_verify(small_bundle: Path, tmp_path: Path) -> None:
    """Two tokens that no golden example has change places."""
    bundle = copy_of(small_bundle, tmp_path)
    tree = json.loads((bundle / "tokenizer.json").read_bytes())
    vocabulary = tree["model"]["vocab"]
    assert not set("$%") & set((bundle / "golden.json").read_text(encoding="utf-8"))
    vocabulary["$"], vocabulary["%"] = vocabulary["%"], vocabulary["$"]
    (bundle / "tokenizer.json").write_text(json.dumps(tree), encoding="utf-8")
    assert problems(rehash(bundle)) == [
        f"the {side} tokenizer `tokenizer.json` has another vocabulary than the model" for side in ("source", "target")
    ]


@examples(25, 200)
@given(kind=st.sampled_from(["bpe", "unigram", "word"]), random=st.randoms(use_true_random=True))
def test_mutated_tokenizers_are_refused_or_can_be_used(kind: str, random: Random) -> None:
    data = random_json(random, json.dumps(trained(kind=kind, lowercase=True)).encode())
    with contextlib.suppress(BundleError, ValueError, msgspec.DecodeError, RecursionError):
        tokenizer = Tokenizer.from_content(data, "t.json")
        for ids in tokenizer.encode_batch(TEXTS):
            tokenizer.decode(ids)
