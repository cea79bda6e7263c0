"""Corpora that do not fit into memory: reading, filtering, splitting and encoding them, and the files of token ids."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import signal
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer.config import DataConfig, TokenizerConfig
from edgeformer.data import filters, vocabulary
from edgeformer.data.batches import BatchStream, EncodedPairs
from edgeformer.data.corpora import ParallelCorpus, load_corpus, write_corpus
from edgeformer.data.text import Pair, TextPairs
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import DataError
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.train.encoding import encode_corpus, open_encoded
from edgeformer.train.stopping import Interruption
from edgeformer.train.trainer import Trainer, train
from edgeformer_runtime.cli import text_input
from edgeformer_runtime.tokenizers import Tokenizer, special_tokens
from tests.amounts import combinations, examples
from tests.edgeformer.trainings import recipe

BYTES_PER_PAIR = 100
"""What memory may have for each pair: hashes and masks, but neither text (some 200 bytes a pair) nor token ids."""
SIZES = 300, 600, 1_800
"""Pairs; the first reading also imports modules."""

Form = Callable[[Path, list[tuple[str, str]]], DataConfig]


def lines(pairs: list[tuple[str, str]], side: int) -> bytes:
    return "".join(f"{pair[side]}\n" for pair in pairs).encode()


def aligned(folder: Path, pairs: list[tuple[str, str]]) -> DataConfig:
    for side, name in enumerate(("a.en", "a.fr")):
        (folder / name).write_bytes(lines(pairs, side))
    return DataConfig(train=("a.en", "a.fr"), valid_size=20, test_size=20)


def packed(folder: Path, pairs: list[tuple[str, str]]) -> DataConfig:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.en", lines(pairs, 0))
    (folder / "a.fr.gz").write_bytes(gzip.compress(lines(pairs, 1), 1))
    return DataConfig(train=("a.zip:a.en", "a.fr.gz"), valid_size=20, test_size=20)


def joined(folder: Path, pairs: list[tuple[str, str]]) -> DataConfig:
    config = aligned(folder, pairs)
    for name in ("one", "two"):
        write_corpus(load_corpus(config, folder), folder / name)
    return DataConfig(corpus=("one", "two"))


@pytest.mark.parametrize("form", [packed, pytest.param(joined, marks=pytest.mark.slow)])
def test_memory_has_neither_text_nor_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form) -> None:
    monkeypatch.setattr(text_input, "_READ_BYTES", 1 << 13)
    peaks, sizes = [], []
    for size in SIZES:
        folder = tmp_path / str(size)
        folder.mkdir()
        config = form(folder, [(f"{n} is the number of sheep {n % 7}", f"{n} moutons {n % 7}") for n in range(size)])
        tracemalloc.start()
        corpus = load_corpus(config, folder)
        with mock.patch("edgeformer.data.batches._BLOCK", 500):
            encoded(corpus, corpus.valid, folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        sizes.append(len(corpus.train))
    assert sizes[2] > 0.8 * SIZES[2]
    assert (peaks[2] - peaks[1]) / (sizes[2] - sizes[1]) < BYTES_PER_PAIR


def encoded(corpus: ParallelCorpus, text: Sequence[Pair] | TextPairs, folder: Path) -> EncodedPairs:
    """The training pairs in a word tokenizer of some text."""
    tokenizer = Tokenizer(train_tokenizers(text, TokenizerConfig(kind="word"))[0])
    (folder / "ids").mkdir()
    return EncodedPairs.encode(
        corpus.train,
        tokenizer,
        tokenizer,
        max_source_length=10,
        max_target_length=10,
        special=special_tokens(tokenizer, tokenizer, ()),
        folder=folder / "ids",
    )


def test_split_filters_and_batches_are_those_of_earlier_versions(tmp_path: Path) -> None:
    """Otherwise test sets would change, and runs would resume with other batches. The hash is that of corpora and ids
    that were lists in memory."""
    chance = np.random.default_rng(7)

    def sentence(least: int) -> str:
        return " ".join(map(str, chance.integers(0, 40, chance.integers(least, 12))))

    (tmp_path / "pin.tsv").write_text("".join(f"{sentence(0)}\t{sentence(1)}\n" for _ in range(3000)), encoding="utf-8")
    corpus = load_corpus(DataConfig(train=("pin.tsv",), valid_size=50, test_size=50), tmp_path)
    pairs = encoded(corpus, corpus.train, tmp_path)
    stream = BatchStream(pairs, batch_tokens=300, seed=3, accumulate=2)
    assert (len(pairs), stream.epoch_batches) == (1761, 47)
    digest = hashlib.sha256()
    for batch in islice(stream.start_at(1), 2 * stream.epoch_batches):
        for array in (batch.source, batch.source_length, batch.target, batch.labels):
            digest.update(array.tobytes() + str((array.dtype, array.shape)).encode())
        digest.update(str(batch.update_tokens).encode())
    for part in (corpus.valid, corpus.test):
        digest.update(repr(part).encode())
    assert digest.hexdigest() == "cbf77130058ce98db19dd26e264822e1e542c536a635859dfe6830781946d706"


SENTENCES = st.text("abc", max_size=3)


@examples(30, 100)
@given(pairs=st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1), held_out=st.tuples(*[st.integers(0, 4)] * 2))
@pytest.mark.parametrize("bits", [1, 64])
def test_equal_hashes_do_not_change_the_split(
    pairs: list[tuple[str, str]], held_out: tuple[int, int], bits: int
) -> None:
    """Sentences with equal hashes are ranked by their text, as they always were."""
    valid_size, test_size = held_out
    digest: Callable[[str, bytes], bytes] = filters._digest

    def weak(source: str, key: bytes) -> bytes:
        return (int.from_bytes(digest(source, key)) % (1 << bits)).to_bytes(8)

    ranked = sorted({source for source, _ in pairs}, key=lambda source: (weak(source, b""), source))
    with mock.patch.object(filters, "_digest", lambda source, key: weak(source, b"")):
        if len({weak(source, b"") for source in ranked}) <= valid_size + test_size:
            with pytest.raises(DataError, match="distinct source sentences"):
                filters.split_by_source(TextPairs.of(pairs), valid_size=valid_size, test_size=test_size, seed=1)
            return
        split = filters.split_by_source(TextPairs.of(pairs), valid_size=valid_size, test_size=test_size, seed=1)
    test, valid = ranked[:test_size], ranked[test_size : test_size + valid_size]
    assert split.test == [pair for pair in pairs if pair[0] in test]
    assert split.valid == [pair for pair in pairs if pair[0] in valid]
    assert list(split.train) == [pair for pair in pairs if pair[0] not in test + valid]


def test_text_with_more_or_fewer_lines_than_at_the_first_reading_is_refused(tmp_path: Path) -> None:
    pairs = [(f"source {n}", f"target {n}") for n in range(100)]
    corpus = load_corpus(aligned(tmp_path, pairs), tmp_path)
    for count in (99, 101):
        aligned(tmp_path, [(f"source {n}", f"target {n}") for n in range(count)])
        with pytest.raises(DataError, match="changed while it was read"):
            list(corpus.train)


@pytest.mark.parametrize("shared", [True, False])
def test_subwords_are_learned_from_evenly_spaced_pairs_and_words_from_all(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(vocabulary, "MAX_PAIRS", 3)
    pairs, texts = [(f"s{n}", f"t{n}") for n in range(9)], []
    with mock.patch.object(vocabulary, "train_tokenizer", lambda text, config: texts.append(list(text))):
        train_tokenizers(pairs, TokenizerConfig(kind="bpe", shared=shared))
        train_tokenizers(pairs, TokenizerConfig(kind="word", shared=True))
    sample = [pairs[0], pairs[4], pairs[8]]
    sides = [[pair[side] for pair in sample] for side in (0, 1)]
    assert texts[:-1] == ([[side for pair in sample for side in pair]] if shared else sides)
    assert len(texts[-1]) == 18


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.tsv"
    path.write_text("".join(f"{n} a b\tb a {n % 30}\n" for n in range(200)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stopped_once(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped before its first update."""
    out = tmp_path_factory.mktemp("run") / "run"
    with mock.patch.object(Trainer, "fit", return_value=Interruption(signal.SIGTERM)):
        assert not train(recipe(text, max_steps=2), out).finished
    return out


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Run:
    return Run.open(shutil.copytree(stopped_once, tmp_path / "run"))


@contextmanager
def counted() -> Iterator[mock.Mock]:
    """Counts how often the ids of the training and the validation part are made."""
    with mock.patch.object(EncodedPairs, "encode", wraps=EncodedPairs.encode) as encode:
        yield encode


def ids_of(run: Run) -> list[bytes]:
    return [pairs.source.flat.tobytes() + pairs.kept.tobytes() for pairs in open_encoded(run)]


def test_ids_are_kept_until_training_has_finished(stopped: Run) -> None:
    assert stopped.encoded.is_dir()
    with counted() as encode:
        assert train(None, stopped.path, resume=True).finished
    assert encode.call_count == 0
    assert not stopped.encoded.exists()


@combinations(name=["index.json", "train/ids", "valid/kept"], harm=["missing", "short", "other"])
def test_damaged_ids_are_made_again(stopped: Run, name: str, harm: str) -> None:
    corpus, model, expected = load_corpus(stopped.recipe.data), stopped.build_model(), ids_of(stopped)
    path = stopped.encoded / name
    content = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes(content[:-4] if harm == "short" else bytes([content[0] ^ 1]) + content[1:])
    with counted() as encode:
        encode_corpus(stopped, corpus, model)
        assert encode.call_count == 2
        encode_corpus(stopped, corpus, model)
        assert encode.call_count == 2
    assert ids_of(stopped) == expected


def other_tokenizer(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> ParallelCorpus:
    run.source_tokenizer_path.write_text(run.source_tokenizer_path.read_text(encoding="utf-8") + " ", encoding="utf-8")
    return corpus


def other_text(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> ParallelCorpus:
    return replace(corpus, provenance=msgspec.structs.replace(corpus.provenance, sha256={"text.tsv": "0" * 64}))


def other_data(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> ParallelCorpus:
    data = msgspec.structs.replace(run.recipe.data, seed=2)
    run.recipe = msgspec.structs.replace(run.recipe, data=data)
    return load_corpus(data)


def other_limits(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> ParallelCorpus:
    model.max_source_length -= 1
    return corpus


@pytest.mark.parametrize("change", [other_tokenizer, other_text, other_data, other_limits])
def test_ids_are_made_again_when_what_they_depend_on_changes(
    stopped: Run, change: Callable[..., ParallelCorpus]
) -> None:
    model = stopped.build_model()
    corpus = change(stopped, load_corpus(stopped.recipe.data), model)
    with counted() as encode:
        for _ in range(2):
            encode_corpus(stopped, corpus, model)
            assert encode.call_count == 2


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits of processes")
def test_a_full_disk_is_told_in_a_sentence(stopped: Run, text: Path) -> None:
    import resource

    corpus, model = load_corpus(stopped.recipe.data), stopped.build_model()
    shutil.rmtree(stopped.encoded)
    before = sorted(stopped.path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # a file of ids has more bytes
    try:
        with pytest.raises(DataError, match=r"encoded` cannot be written: File too large\. It needs .* --resume\."):
            encode_corpus(stopped, corpus, model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(stopped.path.iterdir()) == before
    assert train(None, stopped.path, resume=True).finished
