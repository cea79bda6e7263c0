"""The runtime's tokenizer over small vocabularies trained here."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.errors import BundleError, InputError
from edgeformer_runtime.tokenizers import Tokenizer
from tests.robustness.outcomes import allocated

SENTENCES = ["Where is it\u202f?", "Où est-il\u00a0: là\u202f?", "one two three", "</s> <pad> is text", "naïve 😀 café"]


def library_tokenizer(special: tuple[str, ...] = ("<pad>", "<unk>", "<s>", "</s>")) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer=trainer)
    return tokenizer


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    library_tokenizer().save(str(path))
    return path


@pytest.fixture
def tokenizer(tokenizer_file: Path) -> Tokenizer:
    return Tokenizer.from_file(tokenizer_file)


@pytest.mark.parametrize("text", [*SENTENCES, "", " ", "unseen: \u4e2d\u6587\t\n", "\x00"])
def test_round_trip_without_specials(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not set(ids) & {0, 1, 2, 3}
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_batch([text, "one", text]) == [ids, tokenizer.encode("one"), ids]
    assert tokenizer.encode_batch([text, "one"], special_tokens=True) == [[*ids, 3], [*tokenizer.encode("one"), 3]]


@pytest.mark.parametrize(("word", "number"), [("b", 4), ("b", 6)])
def test_every_id_must_be_that_of_one_token(word: str, number: int) -> None:
    ids = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, word: number}
    with pytest.raises(BundleError, match="the ids from 0 to 5, each once, but some are missing or duplicated"):
        Tokenizer(tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>")))


def tokenizer_of(kind: str) -> Tokenizer:
    """A tokenizer for any of the libraries; skips the test without it."""
    if kind == "tokenizers":
        return Tokenizer(library_tokenizer())
    pytest.importorskip(kind.split()[0], reason="the extra is not installed")
    pytest.importorskip("babel", reason="the text to train on is that of CLDR")
    from tests.runtime import test_sentencepiece_files as files

    return files.read(files.OWN if kind == "sentencepiece" else files.OTHER)


KINDS = pytest.mark.parametrize("kind", ["tokenizers", "sentencepiece", "sentencepiece with other ids"])
MIXED = [
    " ".join(words) for words in permutations(["</s>", "<s>", "<unk>", "one ab", "\u00e9t\u00e9", "\U0001f600"], 3)
]


@KINDS
def test_a_pickled_tokenizer_does_the_same(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    copy = pickle.loads(pickle.dumps(tokenizer))
    ids = tokenizer.encode_batch([*MIXED, "", " "])
    assert copy.encode_batch([*MIXED, "", " "]) == ids
    assert [copy.decode(each) for each in ids] == [tokenizer.decode(each) for each in ids]
    assert copy.vocabulary_sha256 == tokenizer.vocabulary_sha256


@KINDS
def test_threads_share_a_tokenizer(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    texts = [f"{text} {number}" for number in range(4) for text in MIXED]
    expected = tokenizer_of(kind).encode_batch(texts)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected
        assert list(pool.map(tokenizer.decode, expected)) == [tokenizer.decode(ids) for ids in expected]


@pytest.mark.parametrize(
    "splits", [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Whitespace()], ids=["spaces", "words"]
)
def test_words_that_are_special_tokens_are_unknown(splits: pre_tokenizers.PreTokenizer) -> None:
    """Vocabularies of whole words have special tokens among their words."""
    names = ["<pad>", "<unk>", "<s>", "</s>", ">>fra<<", "a", "<", ">"]
    library = tokenizers.Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>")
    )
    library.pre_tokenizer = splits
    library.add_special_tokens(names[:5])
    text = TextFormat(languages={"fr": ">>fra<<"})
    tokenizer = Tokenizer(library, text)
    found = tokenizer.encode("a </s> <s>\t<pad> >>fra<< <unk> a")
    assert found[0] == found[-1] == names.index("a")
    assert not set(found) & {0, 2, 3, 4}
    assert tokenizer.encode_batch(["a </s>"], special_tokens=True)[0][-1] == tokenizer.eos_id


def test_tokens_spell_the_text(tokenizer: Tokenizer) -> None:
    assert "".join(tokenizer.tokens(tokenizer.encode("one two"))) == "oneĠtwo"
    assert tokenizer.tokens([3, 0]) == ["</s>", "<pad>"]
    for index in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"got {index}"):
            tokenizer.tokens([index])


def test_padding_and_truncation_of_the_library_are_off() -> None:
    library = library_tokenizer()
    library.enable_padding(length=9)
    library.enable_truncation(2)
    tokenizer = Tokenizer(library)
    assert tokenizer.decode(tokenizer.encode("one two three")) == "one two three"
    assert tokenizer.pad_id not in tokenizer.encode("o")


def test_lone_surrogate_names_the_text(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match=r"Text 2 .*surrogate"):
        tokenizer.encode_batch(["fine", "bad \udc80"])


def test_other_names_of_special_tokens() -> None:
    tokenizer = Tokenizer(
        library_tokenizer(("[X]", "[U]", "[B]", "[E]")),
        TextFormat(pad="[X]", unk="[U]", bos="[B]", eos="[E]"),
    )
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2, 3)
    assert 3 not in tokenizer.encode("[E]")


def test_every_missing_special_token_is_named() -> None:
    with pytest.raises(BundleError, match=r"`<pad>`, `</s>`"):
        Tokenizer(library_tokenizer(("<unk>", "<s>")))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1]", b'{"model": {"type": "BPE"}}', b"\xff\xfe\x00"])
def test_damaged_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        Tokenizer.from_file(path)
    path.unlink()
    with pytest.raises(BundleError, match=r"tokenizer\.json` cannot be read"):
        Tokenizer.from_file(path)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
def test_fork_after_use_is_silent(tokenizer_file: Path) -> None:
    code = (
        "import os, sys; from edgeformer_runtime.tokenizers import Tokenizer;"
        "t = Tokenizer.from_file(sys.argv[1]); t.encode_batch(['one two'] * 64);"
        "pid = os.fork(); t.encode_batch(['one two'] * 64);"
        "pid or os._exit(0); sys.exit(os.waitpid(pid, 0)[1])"  # leave the child as multiprocessing does
    )
    run = subprocess.run([sys.executable, "-c", code, str(tokenizer_file)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_tokenizer_that_is_dropped_leaves_no_memory_behind(small_bundle: Path) -> None:
    content = (small_bundle / "tokenizer.json").read_text(encoding="utf-8")
    words = " ".join(f"word{number}" for number in range(300))

    def use() -> None:
        Tokenizer.from_content(content, "tokenizer.json").encode(words)

    for _ in range(10):
        use()
    before = allocated()
    if not before:
        pytest.skip("this C library does not tell what is allocated")
    for _ in range(100):
        use()
    assert allocated() - before < 2**20
