"""Tokenizers converted from SentencePiece models, against SentencePiece itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sentencepiece")
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.tokenizers import fairseq_ids, model_file, sentencepiece_tokenizer
from edgeformer.importers.tokenizers.model_file import Kind, read_model
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.bundle.tokenizer_file import checked_tokenizer
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.tokenizer.charsmap import Charsmap
from edgeformer_runtime.tokenizer.normalizer import Normalizer
from tests import spm
from tests.conftest import ROOT

Processor = sentencepiece.SentencePieceProcessor


def converted(tmp_path: Path, data: bytes, **options: Any) -> str:
    """Convert a model, and take the result through the checks of a bundle."""
    path = tmp_path / "source.spm"
    path.write_bytes(data)
    content = sentencepiece_tokenizer(path, **options)
    assert checked_tokenizer(content.encode()) == content
    return content


@cache
def pair(name: str, every: int = 30) -> tuple[Processor, Tokenizer]:
    """Train a model; return SentencePiece's processor and our tokenizer."""
    data = spm.model(name, every)
    with TemporaryDirectory() as folder:
        content = converted(Path(folder), data, special_tokens=["<pad>"])
    return Processor(model_proto=data), Tokenizer.from_json(content, "tokenizer.json")


def proto(data: bytes) -> Any:
    return sentencepiece_model_pb2.ModelProto.FromString(data)  # type: ignore[attr-defined]  # made when imported


def pieces(data: bytes, kind: str = "NORMAL") -> list[str]:
    message = proto(data)
    return [piece.piece for piece in message.pieces if piece.type == getattr(piece, kind)]


def differences(processor: Processor, tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """Texts with other encodings, or other decodings of SentencePiece's own encoding."""
    unk = processor.unk_id()
    expected = processor.encode(list(texts))
    encoded = tokenizer.encode_batch(texts)
    known = [[index for index in ids if index != unk] for ids in expected]
    return [
        text
        for text, ids, ours, kept in zip(texts, expected, encoded, known, strict=True)
        if ids != ours or processor.decode(kept) != tokenizer.decode(ids)
    ]


def is_tie(processor: Processor, tokenizer: Tokenizer, text: str) -> bool:
    """Whether two segmentations of a text have the same score in single precision."""
    first, second = (
        sum(processor.get_score(index) for index in ids) for ids in (processor.encode(text), tokenizer.encode(text))
    )
    return abs(first - second) <= 2**-22 * abs(first)


@pytest.mark.parametrize("name", spm.TRAINING)
def test_encodings_and_decodings_are_those_of_sentencepiece(name: str) -> None:
    assert differences(*pair(name), [*spm.EDGE_CASES, *spm.lines(30)]) == []


@pytest.mark.parametrize("name", spm.TRAINING)
def test_normal_forms_are_those_of_sentencepiece(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.spm").write_bytes(spm.model(name))
    processor, rules = Processor(model_proto=spm.model(name)), read_model(tmp_path / "m.spm")
    symbols = [piece.text for piece in rules.pieces if piece.kind is Kind.USER_DEFINED]
    normalizer = Normalizer(Charsmap(rules.charsmap), rules.spaces, symbols)
    texts = [*spm.EDGE_CASES, *spm.lines(30)]
    assert [normalizer(text) for text in texts] == [processor.normalize(text) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("name", spm.TRAINING)
def test_fifty_thousand_lines(name: str) -> None:
    processor, tokenizer = pair(name, 1)
    texts = [*spm.EDGE_CASES, *spm.lines()]
    rng = random.Random(0)
    texts += [" ".join(rng.choices(spm.lines(), k=4)) for _ in range(20_000)]
    assert len(texts) >= 50_000
    wrong = differences(processor, tokenizer, texts)
    assert len(wrong) <= len(texts) / 10_000
    assert "unigram" in name or not wrong
    assert all(is_tie(processor, tokenizer, text) for text in wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unigram", "unigram-identity-symbols", "bpe", "bpe-identity-bytes-symbols"])
def test_every_character(name: str) -> None:
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(characters[start : start + 8]) for start in range(0, len(characters), 8)]
    texts += [f"a{character}e" for character in characters[:0x3000]]
    assert differences(*pair(name), texts) == []


COMMON = st.sampled_from([*"aeio \u0301\u0323\u2581<>&\t", "<sep>", "an", "  ", "ﾞ", "ｶ", "</s>", "<0x41>", "\u200d"])
TEXTS = st.lists(COMMON | st.characters(codec="utf-8"), max_size=30).map("".join)


@pytest.mark.parametrize("name", spm.TRAINING)
@given(text=TEXTS)
@settings(max_examples=100, deadline=None)
def test_arbitrary_text(name: str, text: str) -> None:
    processor, tokenizer = pair(name)
    assert not differences(processor, tokenizer, [text]) or is_tie(processor, tokenizer, text)


@pytest.mark.parametrize("name", spm.TRAINING)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_arbitrary_ids_are_decoded_as_sentencepiece_does(name: str, data: st.DataObject) -> None:
    processor, tokenizer = pair(name)
    frequent = [processor.piece_to_id("\u2581"), *processor.encode("a é <sep> \u4e2d")]
    index = st.sampled_from(frequent) | st.integers(0, processor.get_piece_size() - 1)
    ids = [index for index in data.draw(st.lists(index, max_size=12)) if index != processor.unk_id()]
    assert tokenizer.decode(ids) == processor.decode(ids)
    assert tokenizer.tokens(ids) == [processor.id_to_piece(index) for index in ids]


@pytest.mark.parametrize("name", ["unigram", "unigram-casefold-bytes", "bpe", "bpe-identity-bytes-symbols"])
def test_special_tokens_in_text_are_text(name: str) -> None:
    processor, tokenizer = pair(name)
    ids = tokenizer.encode("</s><s><pad><unk> <0x0A>")
    assert not {tokenizer.eos_id, tokenizer.bos_id, tokenizer.pad_id} & set(ids)
    assert tokenizer.tokens([tokenizer.pad_id, tokenizer.eos_id]) == ["<pad>", "</s>"]
    assert tokenizer.pad_id == processor.get_piece_size()
    assert tokenizer.vocab_size == processor.get_piece_size() + 1
    if "bytes" in name:
        assert tokenizer.decode(ids) == "</s><s><pad><unk> <0x0a>" if "casefold" in name else "</s><s><pad><unk> <0x0A>"
    assert tokenizer.decode([tokenizer.eos_id, *tokenizer.encode("an"), tokenizer.unk_id, tokenizer.pad_id]) == "an"


@pytest.mark.parametrize("name", spm.TRAINING)
def test_a_vocabulary_with_other_ids(name: str, tmp_path: Path) -> None:
    """As those of Marian and Hugging Face: pieces in another order, some absent, others of another language."""
    data = spm.model(name)
    processor, all_pieces = Processor(model_proto=data), pieces(data)
    absent = all_pieces[5:200:7]
    symbols, unused = pieces(data, "USER_DEFINED"), pieces(data, "BYTE")
    rest = [piece for piece in [*all_pieces, *symbols, *unused] if piece not in absent]
    foreign = ["\u2581etwas", "anders", "zzzz", "\u2581", *absent[:1]]
    foreign = [piece for piece in foreign[:3] if piece not in all_pieces]
    names = ["</s>", "<unk>", *reversed(rest), ">>fra<<", *foreign, "<pad>"]
    ids = {piece: index + (index > 20) for index, piece in enumerate(names)}  # no entry 21
    content = converted(tmp_path, data, ids=ids, special_tokens=[">>fra<<", "<pad>", "<s>"])
    tokenizer = Tokenizer.from_json(content, "t.json")
    texts = [*spm.EDGE_CASES, *spm.lines(30), ">>fra<< etwas anders zzzz"]
    expected = [[ids.get(piece, ids["<unk>"]) for piece in row] for row in processor.encode(texts, out_type=str)]
    assert tokenizer.encode_batch(texts) == expected
    assert any(piece in absent for piece in processor.encode(" ".join(all_pieces), out_type=str))
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, ids["<pad>"])
    assert tokenizer.bos_id == ids["<pad>"] + 1 == tokenizer.vocab_size - 1
    assert tokenizer.tokens([ids["zzzz"], ids[">>fra<<"], 21]) == ["zzzz", ">>fra<<", "<unused 21>"]
    assert tokenizer.decode([ids[">>fra<<"], ids["\u2581etwas"], ids["anders"]]).lstrip() == "etwasanders"


@pytest.mark.parametrize("name", ["unigram", "bpe", "bpe-phrases"])
def test_unused_pieces_are_split_as_sentencepiece_does(name: str, tmp_path: Path) -> None:
    message = proto(spm.model(name))
    for piece in message.pieces[4::3]:
        if piece.type == piece.NORMAL:
            piece.type = piece.UNUSED
    data = message.SerializeToString()
    tokenizer = Tokenizer.from_json(converted(tmp_path, data, special_tokens=["<pad>"]), "t.json")
    assert differences(Processor(model_proto=data), tokenizer, [*spm.EDGE_CASES, *spm.lines(30)]) == []


def test_marians_options_for_case_change_nothing_where_they_are_false(tmp_path: Path) -> None:
    """Its ``spm_train`` writes the first of them into every file."""
    stated = changed(lambda m: m.normalizer_spec.MergeFromString(b"\x38\x00\x40\x00"))
    assert stated != spm.model("unigram")
    assert converted(tmp_path, stated) == converted(tmp_path, spm.model("unigram"))


@pytest.mark.parametrize("name", [name for name in spm.TRAINING if name.startswith("bpe")])
def test_of_bpe_pieces_with_equal_scores_the_leftmost_is_merged(name: str, tmp_path: Path) -> None:
    """As the runs of spaces of Llama; here, up to forty pieces share a score."""
    message = proto(spm.model(name))
    for piece in message.pieces:
        if piece.type == piece.NORMAL:
            piece.score = piece.score // 40
    data = message.SerializeToString()
    tokenizer = Tokenizer.from_json(converted(tmp_path, data, special_tokens=["<pad>"]), "t.json")
    texts = [*spm.EDGE_CASES, *spm.lines(30)]
    assert differences(Processor(model_proto=data), tokenizer, texts) == []
    assert tokenizer.encode_batch(texts) != pair(name)[1].encode_batch(texts)


@pytest.mark.parametrize("name", spm.TRAINING)
def test_each_token_stands_for_its_part_of_the_text(name: str) -> None:
    processor, tokenizer = pair(name)
    texts = [*spm.EDGE_CASES, *spm.lines(30), "\U0001f600 an\U0001f600\U0001f600an \u4e2d\u6587a"]
    for text in texts:
        parts, normal = tokenizer.pieces(text), processor.normalize(text).replace("\u2581", " ")
        assert ("".join(parts), len(parts)) == (normal, len(tokenizer.encode(text)))
        # SentencePiece tells parts of the text before it is normalized, and none inside of a user-defined symbol.
        if normal.lstrip(" ") == text and not name.endswith("symbols"):
            surfaces = [piece.surface for piece in processor.encode(text, return_type="proto").pieces]
            assert [part.strip(" ") for part in parts] == [surface.strip(" ") for surface in surfaces]


REAL = sorted((ROOT.parent / "shared" / "real" / "spm").glob("*"))
"""Models that others have published."""


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="needs the models in ../shared/real/spm")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_published_models(path: Path) -> None:
    processor = Processor(model_file=str(path))
    content = sentencepiece_tokenizer(path, special_tokens=["<pad>", "<s>", "</s>"])
    unk = processor.id_to_piece(processor.unk_id())
    tokenizer = Tokenizer.from_json(content, "t.json", TextFormat(unk=unk))
    texts = [*spm.EDGE_CASES, *random.Random(0).sample(spm.lines(), 5000)]
    wrong = differences(processor, tokenizer, texts)
    assert len(wrong) <= 2
    assert all(is_tie(processor, tokenizer, text) for text in wrong)


def test_characters_that_are_no_pieces_can_be_merged(tmp_path: Path) -> None:
    message = proto(spm.model("bpe"))
    kept = [piece for piece in message.pieces if piece.piece not in ("a", "e", "\u2581")]
    del message.pieces[:]
    message.pieces.extend(kept)
    data = message.SerializeToString()
    tokenizer = Tokenizer.from_json(converted(tmp_path, data, special_tokens=["<pad>"]), "t.json")
    assert differences(Processor(model_proto=data), tokenizer, [*spm.EDGE_CASES, *spm.lines(30)]) == []


def test_ids_of_fairseq(tmp_path: Path) -> None:
    data = spm.model("unigram")
    processor = Processor(model_proto=data)
    (tmp_path / "m.spm").write_bytes(data)
    ids = fairseq_ids(tmp_path / "m.spm", ["en_XX", "fr_XX"])
    content = sentencepiece_tokenizer(tmp_path / "m.spm", ids=ids, special_tokens=["<pad>", "en_XX", "fr_XX"])
    tokenizer = Tokenizer.from_json(content, "t.json")
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    text = "Ghana, Kenya en_XX \U0001f600"
    expected = [index + 1 if index != processor.unk_id() else 3 for index in processor.encode(text)]
    assert tokenizer.encode(text) == expected
    assert tokenizer.tokens([tokenizer.vocab_size - 1]) == ["fr_XX"]


@pytest.mark.parametrize("name", [name for name in spm.TRAINING if not name.endswith("symbols")])
def test_the_library_reads_the_file_as_well(name: str, tmp_path: Path) -> None:
    """Its encodings are the same where its normalizer is. It adds a space after every user-defined symbol."""
    content = converted(tmp_path, spm.model(name), special_tokens=["<pad>"])
    library, tokenizer = tokenizers.Tokenizer.from_str(content), pair(name)[1]
    texts = [line for line in spm.lines(30) if line.isascii()]
    same = [library.encode(text).ids == tokenizer.encode(text) for text in texts]
    assert sum(same) >= 0.98 * len(texts) >= 50
    for text in texts[:50]:
        assert library.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "text", ["a" * 2**20, "\u4e2d" * 2**20, "Ghana " * (2**20 // 6)], ids=["a", "unknown", "words"]
)
def test_a_million_characters(name: str, text: str) -> None:
    processor, tokenizer = pair(name)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == processor.decode([index for index in processor.encode(text) if index])


def changed(change: Callable[[Any], object]) -> bytes:
    message = proto(spm.model("unigram"))
    change(message)
    serialized: bytes = message.SerializeToString()
    return serialized


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "must have one unknown piece"),
        (b"{}", "not a SentencePiece model"),
        (b"\xff" * 1000, "not a SentencePiece model"),
        (b"PK\x03\x04" + bytes(100), "not a SentencePiece model"),
        (changed(lambda m: m.trainer_spec.__setattr__("model_type", 4)), "only unigram and BPE"),
        (changed(lambda m: m.normalizer_spec.__setattr__("escape_whitespaces", False)), "do not escape spaces"),
        (changed(lambda m: m.denormalizer_spec.__setattr__("precompiled_charsmap", b"x")), "change decoded text"),
        (changed(lambda m: m.normalizer_spec.__setattr__("precompiled_charsmap", b"xxxxx")), "charsmap is truncated"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x48\x00")), "does not know"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x38\x01")), "option `encode_case`)"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x40\x01")), "option `decode_case`)"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x3a\x01x")), "option `encode_case`)"),
        (changed(lambda m: m.pieces.add(piece="</s>", type=1)), "twice"),
        (changed(lambda m: m.pieces.add(piece="<2>", type=2)), "one unknown piece"),
        (changed(lambda m: m.pieces.add(piece="<0x00>", type=6)), "does not use them"),
        (changed(lambda m: m.pieces.add(piece="", type=1)), "empty, or not UTF-8"),
        (changed(lambda m: m.pieces.add(piece="x" * 200, type=1)), "length <= 128"),
        (changed(lambda m: m.pieces.add(piece="xyzzy", score=float("-inf"))), "finite"),
        (changed(lambda m: m.pieces.add(piece="xyzzy", score=float("nan"))), "finite"),
        (changed(lambda m: m.trainer_spec.__setattr__("byte_fallback", True)), "lacks entries for bytes"),
    ],
)
def test_what_is_damaged_or_not_supported_is_named(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "m.spm").write_bytes(data)
    with pytest.raises(ImporterError, match=r"SentencePiece model `.*m\.spm` .*") as caught:
        sentencepiece_tokenizer(tmp_path / "m.spm")
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImporterError, match="No such file"):
        sentencepiece_tokenizer(tmp_path / "absent.spm")
    with pytest.raises(ImporterError, match="cannot be read"):
        sentencepiece_tokenizer(tmp_path)
    monkeypatch.setattr(model_file, "MAX_BYTES", 1000)
    with pytest.raises(ImporterError, match="more than 1,000 bytes"):
        converted(tmp_path, spm.model("unigram"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ids": {"</s>": 0}}, "lacks the unknown token `<unk>`"),
        ({"unk_token": "[UNK]"}, r"lacks the unknown token `\[UNK\]`"),
        ({"ids": {"<unk>": 0, "a": 0}}, "must be different"),
        ({"ids": {"<unk>": -1}}, "at least 0"),
        ({"ids": {"<unk>": "0"}}, "whole numbers"),
        ({"ids": {"<unk>": 0, "a": 5000}}, "of 2 entries has the id 5,000"),
        ({"ids": {}}, "lacks the unknown token"),
    ],
)
def test_vocabularies_that_do_not_fit(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        converted(tmp_path, spm.model("unigram"), **options)


MUTATED = pytest.mark.parametrize("name", ["unigram", "bpe", "unigram-casefold-bytes"])


def check_mutated(name: str, folder: Path, data: st.DataObject) -> None:
    """A damaged file is refused, or gives a tokenizer that can be used."""
    mutated = bytearray(spm.model(name))
    for _ in range(data.draw(st.integers(1, 4))):
        # Pieces are at the start, rules at the end.
        place = data.draw(st.integers(0, 30_000) | st.integers(0, len(mutated) - 1) | st.integers(-2000, -1))
        mutated[place % len(mutated)] = data.draw(st.integers(0, 255))
    (folder / "mutated.spm").write_bytes(mutated[: data.draw(st.none() | st.integers(0, len(mutated)))])
    try:
        content = sentencepiece_tokenizer(folder / "mutated.spm", special_tokens=["<pad>", "<s>", "</s>"])
    except ImporterError:
        return
    tokenizer = Tokenizer.from_json(content, "t.json", TextFormat(unk=read_model(folder / "mutated.spm").unk_piece))
    for text in spm.EDGE_CASES[:20]:
        tokenizer.decode(tokenizer.encode(text))


@MUTATED
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_mutated_models(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    check_mutated(name, tmp_path_factory.getbasetemp(), data)


@pytest.mark.slow
@MUTATED
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_many_mutated_models(name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    check_mutated(name, tmp_path_factory.getbasetemp(), data)
