"""Tokenizer files of SentencePiece models: what they may have, and hostile ones. Needs no SentencePiece."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import struct
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from edgeformer_runtime.bundle.tokenizer_file import checked_tokenizer
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MAX_AFFIX
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.tokenizer.charsmap import EMPTY, Charsmap
from edgeformer_runtime.tokenizer.normalizer import Spaces
from edgeformer_runtime.tokenizer.sentencepiece_file import decoder, normalizer
from edgeformer_runtime.translator import Translator
from robustness.mutations import mutated
from tests.bundles import copy_of, rehash
from tests.runtime.test_mutated_bundles import CHANGES, FEW, MANY

Tree = dict[str, Any]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
RULES = {"A": "a", "e\u0301": "é", "\u00ad": "", "ß": "ss", "\ufdfa": "x y", "e\u0301\u0302": "ế"}
TEXTS = ["ab A e\u0301 ba", "  </s><0x41> ", "\u2581a<x>\ufdfa\u00adß", "", " ", "e\u0301\u0302e\u0302\u0301", "\0a"]


def charsmap(rules: Mapping[str, str]) -> bytes:
    """Build a charsmap the simplest way: each node's children at the first offset where all fit."""
    units: dict[int, int] = {0: 0}
    values, replacements = {}, b""
    for key, replacement in rules.items():
        values[key.encode()] = len(replacements)
        replacements += replacement.encode() + b"\0"
    states: set[int] = set()

    def place(index: int, prefix: bytes) -> None:
        labels = sorted({key[len(prefix)] for key in values if key.startswith(prefix) and len(key) > len(prefix)})
        is_key = prefix in values
        slots = [*labels, 0] if is_key else labels
        state = next(
            state
            for state in range(1, 2**16)
            if state not in states and all(state ^ slot not in units for slot in slots)
        )
        states.add(state)
        units[index] |= (state ^ index) << 10 | is_key << 8
        for label in labels:
            units[state ^ label] = label
        if is_key:
            units[state] = 1 << 31 | values[prefix]
        for label in labels:
            place(state ^ label, prefix + bytes([label]))

    place(0, b"")
    size = (max(units) // 256 + 1) * 256
    trie = struct.pack(f"<{size}I", *(units.get(index, 0) for index in range(size)))
    return struct.pack("<I", len(trie)) + trie + replacements


def file_of(model: Tree, *, spaces: Spaces = Spaces(True, "prefix"), rules: bytes | None = None) -> Tree:  # noqa: B008
    """A file whose first entries are the special tokens, and the next a user-defined symbol."""
    parts = msgspec.json.encode([normalizer(rules or charsmap(RULES), spaces), decoder(spaces)])
    normal, restored = json.loads(parts)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": index, "content": token, "special": True, **flags} for index, token in enumerate(SPECIAL)]
    return {
        "version": "1.0",
        "added_tokens": [*added, {"id": 4, "content": "<x>", "special": False, **flags}],
        "normalizer": normal,
        "decoder": restored,
        "model": model,
    }


WORDS = ["\u2581", "a", "b", "é", "ab", "\u2581a", *(f"q{number}" for number in range(32)), "zz"]
PIECES = [*SPECIAL, "<x>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
"""As many as the committed bundles have."""


def unigram(**fields: Any) -> Tree:
    scores = [[piece, {"ab": -1.0, "\u2581a": -1.5}.get(piece, -2.0)] for piece in PIECES]
    model = {"type": "Unigram", "vocab": scores, "unk_id": 1, "byte_fallback": True, "unmatched": [len(PIECES) - 1]}
    return file_of({**model, **fields})


def bpe(**fields: Any) -> Tree:
    ids = {piece: index for index, piece in enumerate(PIECES)}
    merges = [["a", "b"], ["\u2581", "a"]]
    model = {"type": "BPE", "vocab": ids, "merges": merges, "unk_token": "<unk>", "byte_fallback": True}
    return file_of({**model, "unmatched": [len(PIECES) - 1], **fields})


KINDS = {"unigram": unigram, "bpe": bpe}


def read(tree: Tree) -> Tokenizer:
    return Tokenizer.from_json(checked_tokenizer(json.dumps(tree).encode("utf-8", "surrogatepass")), "t.json")


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_normalized_segmented_and_restored(kind: str) -> None:
    tokenizer = read(KINDS[kind]())
    assert tokenizer.tokens(tokenizer.encode(" AB  e\u0301ab<x>")) == ["\u2581a", "<0x42>", "\u2581", "é", "ab", "<x>"]
    assert tokenizer.decode(tokenizer.encode("AB  e\u0301ab")) == "aB éab"
    assert tokenizer.encode_batch(["", "  ", "\u00ad"]) == [[], [], []]
    assert tokenizer.decode(tokenizer.encode("</s><unk><0x41>zz")) == "</s><unk><0x41>zz"
    assert not set(tokenizer.encode("</s><unk> <pad>zz<0x41>")) & {*range(4), tokenizer.vocab_size - 1}
    assert tokenizer.tokens([tokenizer.vocab_size - 1]) == ["zz"]
    assert tokenizer.decode([tokenizer.vocab_size - 1, 2]) == "zz"
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (1, 2, 3, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_after_the_models_own_are_unknown_to_it(kind: str) -> None:
    size = PIECES.index("ab")
    tokenizer = read(KINDS[kind](size=size))
    assert tokenizer.vocab_size == size
    assert tokenizer.encode("ab ab b") == [PIECES.index("\u2581"), 1, PIECES.index("\u2581"), 1, *tokenizer.encode("b")]
    with pytest.raises(ValueError, match=f"between 0 and {size - 1}"):
        tokenizer.tokens([size])


@pytest.mark.parametrize("kind", KINDS)
def test_one_unknown_token_for_a_run_of_unknown_characters(kind: str) -> None:
    tokenizer = read(KINDS[kind](byte_fallback=False))
    names = [name for name in tokenizer.tokens(tokenizer.encode("a \u4e2d\u6587 \u4e2da")) if name != "\u2581"]
    assert names == ["\u2581a", "<unk>", "<unk>", "a"]


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    tokenizer = read(unigram())
    data = [5 + byte for byte in b"\xe4\xb8A\xff\xe4\xb8\xad"]
    assert tokenizer.decode(data) == "\ufffd\ufffdA\ufffd\u4e2d"


def test_the_longest_key_is_replaced() -> None:
    rules = Charsmap(charsmap(RULES))
    assert rules.replace("Ae\u0301\u0302\u00adß e\u0302e\u0301", {}) == "aếss e\u0302é"
    assert rules.chunks("xe\u0301", {"\u0301": ("\u0301",), "e": ("e\u0301x",)}) == ["x", "é"]
    assert rules.replace("Ae\u0301A", {"e": ("e\u0301A", "e\u0301")}) == "ae\u0301A"
    assert Charsmap(EMPTY).replace("A\0é", {}) == "A\0é"


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_with_such_a_tokenizer_translates(kind: str, small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "tokenizer.json").write_text(json.dumps(KINDS[kind]()), encoding="utf-8")
    translator = Translator.open(rehash(bundle), threads=1)
    (translation,) = translator.translate(["AB <x> </s>"])
    assert translator.source_tokenizer.tokens(translation.source.ids) == [
        *["\u2581a", "<0x42>", "\u2581", "<x>", "\u2581", "<0x3C>", "<0x2F>", "<0x73>", "<0x3E>", "</s>"]
    ]
    assert translation.text == translator.target_tokenizer.decode(translation.best.ids)
    assert set(translation.tokens) <= set(PIECES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_can_be_pickled(kind: str) -> None:
    tokenizer = read(KINDS[kind]())
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert copy.vocabulary_sha256 == tokenizer.vocabulary_sha256


def test_threads_share_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeformer_runtime.tokenizer.charsmap._MAX_CACHED", 8)  # cleared all the time
    tokenizer = read(unigram())
    rng = random.Random(0)
    texts = ["".join(rng.choices([*RULES, *"\u0302\u0301aebxyzABCDE \u4e2d"], k=20)) for _ in range(500)]
    expected = [tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected


def change_normalizer(tree: Tree, index: int, **fields: Any) -> None:
    tree["normalizer"]["normalizers"][index].update(fields)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: change_normalizer(tree, 2, content="  "), "not those of a SentencePiece model"),
        (lambda tree: change_normalizer(tree, 2, pattern={"Regex": "(a+)+$"}), "not those of a SentencePiece model"),
        (lambda tree: change_normalizer(tree, 3, prepend="x"), "not those of a SentencePiece model"),
        (lambda tree: change_normalizer(tree, 4, content="b" * 65), "length <= 64"),
        (lambda tree: tree["normalizer"]["normalizers"].reverse(), "not those of a SentencePiece model"),
        (lambda tree: tree["normalizer"]["normalizers"].append({"type": "Lowercase"}), "Lowercase"),
        (lambda tree: tree["decoder"]["decoders"].pop(), "not those of a SentencePiece model"),
        (lambda tree: tree.update(normalizer=tree["normalizer"]["normalizers"][0]), "Precompiled"),
        (lambda tree: tree.update(pre_tokenizer={"type": "WhitespaceSplit"}), "at `$.pre_tokenizer`"),
        (lambda tree: change_normalizer(tree, 0, precompiled_charsmap="%%%"), "base64"),
        (lambda tree: change_normalizer(tree, 0, precompiled_charsmap=""), "charsmap is truncated"),
        (lambda tree: tree["added_tokens"][0].update(id=2), "the id of an added token"),
        (lambda tree: tree["added_tokens"].append({**tree["added_tokens"][0], "content": "absent"}), "an added token"),
        (lambda tree: tree["model"].update(unmatched=[10**6]), "an unmatched entry does not exist"),
        (lambda tree: tree["model"].update(size=10**6), "fewer entries than its size"),
        (lambda tree: tree["model"].update(size=0), "no unknown token"),
        (lambda tree: tree["model"].update(surprise=1), "surprise"),
    ],
)
def test_what_is_no_sentencepiece_model_is_refused(kind: str, change: Callable[[Tree], object], words: str) -> None:
    tree = KINDS[kind]()
    change(tree)
    with pytest.raises(BundleError, match=r"Tokenizer file `t\.json` is damaged") as caught:
        read(tree)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (unigram(vocab=[["<unk>", 0.0]] * 2), "duplicated"),
        (unigram(vocab=[["<unk>", -1.0], ["a" * 129, -1.0]]), "length <= 128"),
        (unigram(vocab=[[piece, -1.0] for piece in PIECES[:100]], unmatched=[]), "lacks entries for bytes"),
        (unigram(unk_id=10**6), "no unknown token"),
        (bpe(unk_token="[UNK]"), "no unknown token"),
        (bpe(vocab={piece: 2 * index for index, piece in enumerate(PIECES)}), "ids are missing"),
        (bpe(merges=[["a", "x"]]), "a merge makes no entry"),
        (bpe(merges=[["</", "s>"]]), "text must not match"),
        (bpe(merges=[["<0x4", "1>"]]), "text must not match"),
        (bpe(fuse_unk=False), "fuse_unk"),
        (bpe(dropout=0.5), "dropout"),
    ],
)
def test_models_that_contradict_themselves_are_refused(tree: Tree, words: str) -> None:
    with pytest.raises(BundleError, match=r"Tokenizer file `t\.json` is damaged") as caught:
        read(tree)
    assert words in str(caught.value)


def test_a_vocabulary_with_the_word_precompiled_is_no_sentencepiece_model() -> None:
    model = {"type": "BPE", "vocab": {"Precompiled": 0, "a": 1}, "merges": []}
    tree: Tree = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "decoder": None}
    assert "Precompiled" in checked_tokenizer(json.dumps({**tree, "model": model}).encode())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (EMPTY[:-1], "truncated"),
        (EMPTY[:500], "truncated"),
        (struct.pack("<I", 2**32 - 1) + EMPTY[4:], "truncated"),
        (struct.pack("<I", 6) + bytes(10), "truncated"),
        (EMPTY + b"x" * (MAX_AFFIX + 1) + b"\0", "65 characters"),
        (EMPTY + b"\xff\0", "not UTF-8"),
        (EMPTY[:4] + struct.pack("<I", 2**20 << 10) + EMPTY[8:], "trie is damaged"),
        (EMPTY[:8] + struct.pack("<I", 1 << 31 | 5) + EMPTY[12:], "trie is damaged"),
        (bytes(4) + EMPTY[4:], "truncated"),
        (EMPTY + bytes(2**22), "at most 4,194,304"),
    ],
)
def test_damaged_charsmaps_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Charsmap(data)


def test_keys_without_end_are_refused() -> None:
    """The unit of ``a`` leads to itself."""
    units = [0] * 256
    units[0], units[ord("a") ^ 1] = 1 << 10, (ord("a") ^ 1 ^ 1) << 10 | ord("a")
    with pytest.raises(ValueError, match="too long"):
        Charsmap(struct.pack("<I256I", 1024, *units) + b"\0")


def test_random_tries_are_refused_or_do_no_harm() -> None:
    rng, accepted = random.Random(0), 0
    for _ in range(300):
        data = bytearray(charsmap(RULES))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            rules = Charsmap(bytes(data))
            accepted += 1
            for text in [*TEXTS, "".join(map(chr, range(1, 0x800)))]:
                assert len(rules.replace(text, {})) <= len(text) * MAX_AFFIX
    assert 30 <= accepted < 300


def check_mutated(kind: str, changes: list[tuple[int, str, Any]]) -> None:
    """A tokenizer is refused with one of our errors, or can be used."""
    with contextlib.suppress(BundleError, ValueError, msgspec.DecodeError, RecursionError):
        tokenizer = read(mutated(KINDS[kind](), changes))
        for ids in tokenizer.encode_batch(TEXTS):
            tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
@FEW
@given(changes=CHANGES)
def test_mutated_files(kind: str, changes: list[tuple[int, str, Any]]) -> None:
    check_mutated(kind, changes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@MANY
@given(changes=CHANGES)
def test_many_mutated_files(kind: str, changes: list[tuple[int, str, Any]]) -> None:
    check_mutated(kind, changes)
