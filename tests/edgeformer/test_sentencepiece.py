"""SentencePiece models as importers convert them, against SentencePiece itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sentencepiece")
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.tokenizers import fairseq_ids, sentencepiece_model, sentencepiece_tokenizer
from edgeformer.importers.tokenizers.sentencepiece_model import read_model
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.tokenizers import Tokenizer
from tests import spm
from tests.amounts import examples
from tests.conftest import ROOT

Processor = sentencepiece.SentencePieceProcessor


def converted(tmp_path: Path, data: bytes, **options: Any) -> str:
    path = tmp_path / "source.spm"
    path.write_bytes(data)
    return sentencepiece_tokenizer(path, **options)


@cache
def pair(name: str) -> tuple[Processor, Tokenizer]:
    """Train a model; return SentencePiece's processor and our tokenizer."""
    data = spm.model(name)
    with TemporaryDirectory() as folder:
        content = converted(Path(folder), data, special_tokens=["<pad>"])
    return Processor(model_proto=data), Tokenizer.from_content(content, "t.json")


def proto(data: bytes) -> Any:
    return sentencepiece_model_pb2.ModelProto.FromString(data)  # type: ignore[attr-defined]  # made when imported


def pieces(data: bytes, kind: str = "NORMAL") -> list[str]:
    message = proto(data)
    return [piece.piece for piece in message.pieces if piece.type == getattr(piece, kind)]


COMMON = st.sampled_from([*"aeio \u0301\u0323\u2581<>&\t", "<sep>", "an", "  ", "ﾞ", "ｶ", "</s>", "<0x41>", "\u200d"])
TEXTS = st.lists(COMMON | st.characters(codec="utf-8"), max_size=30).map("".join)
ALL = pytest.mark.parametrize("name", spm.TRAINING)


@ALL
@given(text=TEXTS | st.sampled_from(spm.EDGE_CASES))
@examples(15, 200)
def test_text_is_encoded_and_restored_as_by_sentencepiece(name: str, text: str) -> None:
    processor, tokenizer = pair(name)
    ids = processor.encode(text)
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == processor.decode([index for index in ids if index != processor.unk_id()])


@ALL
@given(data=st.data())
@examples(15, 100)
def test_arbitrary_ids_are_decoded_as_by_sentencepiece(name: str, data: st.DataObject) -> None:
    processor, tokenizer = pair(name)
    frequent = [processor.piece_to_id("\u2581"), *processor.encode("a é <sep> \u4e2d")]
    index = st.sampled_from(frequent) | st.integers(0, processor.get_piece_size() - 1)
    ids = [index for index in data.draw(st.lists(index, max_size=12)) if index != processor.unk_id()]
    ordinary = [index for index in ids if not processor.is_control(index)]  # nor divides one the bytes of a character
    assert tokenizer.decode(ids) == processor.decode(ordinary)
    assert tokenizer.decode_with([*ids, 0], {}) == tokenizer.decode(ids).strip()
    assert tokenizer.tokens(ids) == [processor.id_to_piece(index) for index in ids]


@ALL
@given(text=TEXTS)
@examples(15, 200)
def test_no_text_is_encoded_to_a_special_token(name: str, text: str) -> None:
    tokenizer = pair(name)[1]
    special = {tokenizer.eos_id, tokenizer.bos_id, tokenizer.pad_id}
    for typed in (text, f"</s>{text}<s><pad>", f"{text} <pad> </s>"):
        assert special.isdisjoint(tokenizer.encode(typed))


@pytest.mark.parametrize("name", ["unigram-casefold-bytes", "bpe-identity-bytes-symbols"])
def test_special_tokens_in_text_are_text(name: str) -> None:
    processor, tokenizer = pair(name)
    text = "</s><s><pad><unk> <0x0A>"
    assert tokenizer.decode(tokenizer.encode(text)) == (text.lower() if "casefold" in name else text)
    assert tokenizer.tokens([tokenizer.pad_id, tokenizer.eos_id]) == ["<pad>", "</s>"]
    assert tokenizer.pad_id == processor.get_piece_size() == tokenizer.vocab_size - 1
    assert tokenizer.decode([tokenizer.eos_id, *tokenizer.encode("an"), tokenizer.unk_id, tokenizer.pad_id]) == "an"
    assert tokenizer.decode_with([*tokenizer.encode("an"), tokenizer.unk_id], {2: "</s>"}).endswith("</s>")


def test_pieces_can_become_special(tmp_path: Path) -> None:
    """As the tokens of languages, which are symbols that users define."""
    data = spm.model("bpe-identity-bytes-symbols")
    text = TextFormat(languages={"an": "ana", "xx": "<sep>"})
    content = converted(tmp_path, data, special_tokens=["<pad>", "ana", "<sep>"])
    tokenizer = Tokenizer.from_content(content, "t.json", text)
    ids = tokenizer.encode("ana <sep> an")
    assert {tokenizer.token_id("ana"), tokenizer.token_id("<sep>")}.isdisjoint(ids)
    assert tokenizer.decode(ids) == "ana <sep> an"
    assert tokenizer.vocab_size == len(proto(data).pieces) + 1


@ALL
def test_a_vocabulary_with_other_ids(name: str, tmp_path: Path) -> None:
    """As those of Marian and Hugging Face: pieces in another order, some absent, others of another language."""
    data = spm.model(name)
    processor, all_pieces = Processor(model_proto=data), pieces(data)
    absent = all_pieces[5:200:7]
    rest = [*all_pieces, *pieces(data, "USER_DEFINED"), *pieces(data, "BYTE")]
    rest = [piece for piece in rest if piece not in absent]
    foreign = [piece for piece in ("\u2581etwas", "anders", "zzzz") if piece not in all_pieces]
    names = ["</s>", "<unk>", *reversed(rest), ">>fra<<", *foreign, "<pad>"]
    ids = {piece: index + (index > 20) for index, piece in enumerate(names)}  # no entry 21
    content = converted(tmp_path, data, ids=ids, special_tokens=[">>fra<<", "<pad>", "<s>"])
    tokenizer = Tokenizer.from_content(content, "t.json")
    texts = [*spm.EDGE_CASES, *spm.lines(30), ">>fra<< etwas anders zzzz"]
    expected = [[ids.get(piece, ids["<unk>"]) for piece in row] for row in processor.encode(texts, out_type=str)]
    assert tokenizer.encode_batch(texts) == expected
    assert any(piece in absent for piece in processor.encode(" ".join(all_pieces), out_type=str))
    assert (tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id) == (0, 1, ids["<pad>"])
    assert tokenizer.bos_id == ids["<pad>"] + 1 == tokenizer.vocab_size - 1
    assert tokenizer.tokens([ids["zzzz"], ids[">>fra<<"], 21]) == ["zzzz", ">>fra<<", "<unused 21>"]
    foreign_ids = [ids[">>fra<<"], ids["\u2581etwas"], 21, ids["anders"], ids["\u2581etwas"]]
    assert tokenizer.decode(foreign_ids) == "etwasanders etwas"
    for line in spm.lines(30)[:50]:
        known = [index for index in tokenizer.encode(line) if index != tokenizer.unk_id]
        own = [processor.piece_to_id(piece) for piece in tokenizer.tokens(known)]
        assert tokenizer.decode(known) == processor.decode(own)


def test_ids_of_fairseq(tmp_path: Path) -> None:
    data = spm.model("unigram")
    processor = Processor(model_proto=data)
    (tmp_path / "m.spm").write_bytes(data)
    ids = fairseq_ids(tmp_path / "m.spm", ["en_XX", "fr_XX"])
    content = sentencepiece_tokenizer(tmp_path / "m.spm", ids=ids, special_tokens=["<pad>", "en_XX", "fr_XX"])
    tokenizer = Tokenizer.from_content(content, "t.json")
    assert (tokenizer.bos_id, tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    text = "Ghana, Kenya en_XX \U0001f600"
    expected = [index + 1 if index != processor.unk_id() else 3 for index in processor.encode(text)]
    assert tokenizer.encode(text) == expected
    assert tokenizer.tokens([tokenizer.vocab_size - 1]) == ["fr_XX"]


def test_the_unknown_token_may_have_another_name(tmp_path: Path) -> None:
    ids = {"[UNK]": 0, "</s>": 1, "<s>": 2, **{name: index for index, name in enumerate(pieces(spm.model("bpe")), 3)}}
    content = converted(tmp_path, spm.model("bpe"), ids=ids, special_tokens=["<pad>"], unk_token="[UNK]")
    tokenizer = Tokenizer.from_content(content, "t.json", TextFormat(unk="[UNK]"))
    assert tokenizer.tokens(tokenizer.encode("an\U0001f600"))[-1] == "[UNK]"
    assert tokenizer.decode([tokenizer.unk_id, *tokenizer.encode("an")]) == "an"


@ALL
@given(text=TEXTS)
@examples(15, 200)
def test_each_token_stands_for_its_part_of_the_text(name: str, text: str) -> None:
    tokenizer = pair(name)[1]
    ids, spans, parts = tokenizer.encode(text), tokenizer.spans(text), tokenizer.pieces(text)
    assert len(ids) == len(spans) == len(parts)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert [part.strip() for part in parts] == [text[start:end].strip() for start, end in spans]


@pytest.mark.parametrize("name", ["unigram", "bpe"])
def test_words_of_the_source_replace_unknown_tokens(name: str) -> None:
    tokenizer = pair(name)[1]
    ids = [tokenizer.unk_id, *tokenizer.encode("an"), tokenizer.unk_id]
    replaced = tokenizer.decode_with(ids, {0: " \u4e2d\u6587", len(ids) - 1: " <s>\u2581"})
    assert replaced == "\u4e2d\u6587 an <s>\u2581"


REAL = sorted((ROOT.parent / "shared" / "real" / "spm").glob("*"))
"""Models that others have published."""


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="needs the models in ../shared/real/spm")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_published_models(path: Path) -> None:
    processor, model = Processor(model_file=str(path)), read_model(path)
    special = ["<pad>", "<s>", "</s>"]
    text = TextFormat(unk=model.unk_piece)
    own = Tokenizer.from_content(sentencepiece_tokenizer(model, special_tokens=special), "t.json", text)
    ids, last = {name: index for index, name in enumerate(reversed(model.pieces))}, len(model.pieces) - 1
    other = Tokenizer.from_content(sentencepiece_tokenizer(model, ids=ids, special_tokens=special), "t.json", text)
    for line in [*spm.EDGE_CASES, *random.Random(0).sample(spm.lines(), 5000)]:
        expected = processor.encode(line)
        assert own.encode(line) == expected
        assert other.encode(line) == [last - index for index in expected]
        known = processor.decode([index for index in expected if index != processor.unk_id()])
        assert own.decode(expected) == other.decode(other.encode(line)) == known


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


def test_marians_options_for_case_change_nothing_where_they_are_false(tmp_path: Path) -> None:
    """Its ``spm_train`` writes the first of them into every file."""
    stated = changed(lambda m: m.normalizer_spec.MergeFromString(b"\x38\x00\x40\x00"))
    assert stated != spm.model("unigram")
    tokenizer = Tokenizer.from_content(converted(tmp_path, stated, special_tokens=["<pad>"]), "t.json")
    assert tokenizer.encode_batch(spm.lines(30)) == pair("unigram")[1].encode_batch(spm.lines(30))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "must have one unknown piece"),
        (b"{}", "not a SentencePiece model"),
        (b"\xff" * 1000, "not a SentencePiece model"),
        (b"PK\x03\x04" + bytes(100), "not a SentencePiece model"),
        (changed(lambda m: m.normalizer_spec.__setattr__("precompiled_charsmap", b"xxxxx")), "Trie data size"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x48\x00")), "does not know"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x38\x01")), "option `encode_case`)"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x40\x01")), "option `decode_case`)"),
        (changed(lambda m: m.normalizer_spec.MergeFromString(b"\x3a\x01x")), "option `encode_case`)"),
        (changed(lambda m: m.pieces.add(piece="</s>", type=1)), "twice"),
        (changed(lambda m: m.pieces.add(piece="<2>", type=2)), "one unknown piece"),
        (changed(lambda m: m.pieces.add(piece="<0x00>", type=6)), "byte_fallback"),
        (changed(lambda m: m.pieces.add(piece="", type=1)), "empty, or not UTF-8"),
        (changed(lambda m: m.pieces.add(piece="x" * 600, type=1)), "length <= 128 - at `$.pieces"),
        (changed(lambda m: m.trainer_spec.__setattr__("byte_fallback", True)), "256 byte pieces"),
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
    monkeypatch.setattr(sentencepiece_model, "MAX_BYTES", 1000)
    with pytest.raises(ImporterError, match="more than 1,000 bytes"):
        converted(tmp_path, spm.model("unigram"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ids": {"</s>": 0}}, "lacks the unknown token `<unk>`"),
        ({"unk_token": "[UNK]"}, r"lacks the unknown token `\[UNK\]`"),
        ({"unk_token": "\u2581"}, "is a piece of the model, but not the unknown one"),
        ({"ids": {"<unk>": 0, "a": 0}}, "must give an id of its own"),
        ({"ids": {"<unk>": -1}}, "must give an id to each entry .*>= 0"),
        ({"ids": {"<unk>": "0"}}, "Expected `int`, got `str`"),
        ({"ids": {"<unk>": 0, "a": 5000}}, "has 2 entries with ids up to 5,000"),
        ({"ids": {}}, "must give an id"),
    ],
)
def test_vocabularies_that_do_not_fit(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises((ConfigError, ImporterError), match=words):
        converted(tmp_path, spm.model("unigram"), **options)


@pytest.mark.parametrize("name", ["unigram", "bpe", "unigram-casefold-bytes"])
@examples(10, 300)
@given(data=st.data())
def test_damaged_files_are_refused_or_can_be_used(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    damaged = bytearray(spm.model(name))
    for _ in range(data.draw(st.integers(1, 4))):
        # Pieces are at the start, rules at the end.
        offset = data.draw(st.integers(0, 30_000) | st.integers(0, len(damaged) - 1) | st.integers(-2000, -1))
        damaged[offset % len(damaged)] = data.draw(st.integers(0, 255))
    (folder / "mutated.spm").write_bytes(damaged[: data.draw(st.none() | st.integers(0, len(damaged)))])
    try:
        model = read_model(folder / "mutated.spm")
        content = sentencepiece_tokenizer(model, special_tokens=["<pad>", "<s>", "</s>"])
    except ImporterError:
        return
    tokenizer = Tokenizer.from_content(content, "t.json", TextFormat(unk=model.unk_piece))
    for text in spm.EDGE_CASES[:20]:
        tokenizer.decode(tokenizer.encode(text))
