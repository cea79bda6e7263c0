"""Vocabularies of Hugging Face model folders: text becomes the ids that the models were trained with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.families import FAMILIES
from edgeformer.importers.hugging_face.importer import read_folder
from edgeformer.importers.hugging_face.model_folder import open_folder
from edgeformer.importers.languages import tags, with_tags
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.sample import sample_text
from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE, TextFormat, matching_code
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.tokenizers import Tokenizer
from tests.commands import succeeded
from tests.importers.hugging_face_models import LANGUAGES, SAVED, changed, write_json

Processor = sentencepiece.SentencePieceProcessor
TEXTS = [text for language in ("en", "fr", "vi", "ja", "ar", "hi") for text in sample_text(language, 60)]
EDGE_CASES = [
    "a",
    "  two  spaces  ",
    "tab\there",
    "I\u00a0have 3½ km² of ﬁelds…",
    "🙂 emoji 👩‍👩‍👧",
    "half ｶﾞ width",
    "e\u0301 ẹ́",
    "«quotes» — dashes",
]
SPECIAL = [
    "a </s> b",
    "<s>",
    "<unk> and <pad>",
    ">>fra<< x",
    "__fr__ x",
    "fra_Latn",
    "<extra_id_0>",
    "<mask>",
    "<2fr> x",
]


def source(model: ImportedModel, source_language: str = "", target_language: str = "") -> Tokenizer:
    tokenizer = Tokenizer.from_content(model.source_tokenizer, "of the source", model.text)
    return tokenizer.for_sources(source_language, target_language)


def target(model: ImportedModel) -> Tokenizer:
    return Tokenizer.from_content(model.target_tokenizer, "of the target", model.text)


def check(tokenizer: Tokenizer, expected: Callable[[str], Iterable[int]], texts: list[str]) -> None:
    for text, ids in zip(texts, tokenizer.encode_batch(texts, special_tokens=True), strict=True):
        assert (text, ids) == (text, list(expected(text)))


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which is not used
def test_marian_encodes_as_its_slow_tokenizer(hugging_face: Callable[[str], Path]) -> None:
    reference = transformers.MarianTokenizer.from_pretrained(hugging_face("marian"))
    model = read_folder(hugging_face("marian"))
    tokenizer = source(model, "en", "de")
    check(tokenizer, lambda text: reference(f">>deu<< {text}").input_ids, TEXTS + EDGE_CASES)
    assert any(tokenizer.unk_id in ids for ids in tokenizer.encode_batch(TEXTS)), "pieces without an id"
    ours = target(model)
    for text in TEXTS[60:120]:
        ids = reference(text_target=text).input_ids
        assert ours.encode(text) == ids[:-1]
        if ours.unk_id not in ids:
            assert ours.decode(ids) == text


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which is not used
def test_split_marian_has_a_vocabulary_for_each_side(hugging_face: Callable[[str], Path]) -> None:
    reference = transformers.MarianTokenizer.from_pretrained(hugging_face("split_marian"), separate_vocabs=True)
    model = read_folder(hugging_face("split_marian"))
    check(source(model), lambda text: reference(text).input_ids, TEXTS + EDGE_CASES)
    check(target(model), lambda text: reference(text_target=text).input_ids, TEXTS + EDGE_CASES)


def saved_again(name: str, folder: Path, to: Path) -> tuple[Path, int]:
    """Write a folder whose tokenizer ``transformers`` has saved; return its SentencePiece model, which is elsewhere
    then, and its number of entries."""
    class_name, pieces, options = SAVED[name]
    model = to.with_name(pieces)
    shutil.copyfile(folder / pieces, model)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns(pieces, "tokenizer*", "special_tokens_map.json"))
    tokenizer = getattr(transformers, class_name).from_pretrained(str(model), **options)
    tokenizer.save_pretrained(to)
    assert not list(to.glob("*.model"))
    return model, len(tokenizer)


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.filterwarnings("ignore:Calling")  # with a file
def test_a_tokenizer_that_transformers_saved_is_rebuilt(
    hugging_face: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    model, rows = saved_again(name, hugging_face(name), tmp_path / "saved")
    folders = open_folder(tmp_path / "saved"), open_folder(tmp_path / "saved", (model,))
    alone, given = (FAMILIES[opened.config["model_type"]].vocabulary(opened, (rows, rows)) for opened in folders)
    assert (alone.languages, alone.prefix, alone.suffix) == (given.languages, given.prefix, given.suffix)
    assert alone.source.names == given.source.names
    text = TextFormat(pad="<pad>", unk=alone.unk, bos="<pad>", eos="</s>")
    rebuilt, original = (Tokenizer.from_content(found.source.content, "t.json", text) for found in (alone, given))
    assert rebuilt.encode_batch(TEXTS + EDGE_CASES + SPECIAL) == original.encode_batch(TEXTS + EDGE_CASES + SPECIAL)


@pytest.fixture(scope="module")
def saved_t5(hugging_face: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder whose tokenizer ``transformers`` has saved, and its SentencePiece model. Do not modify them."""
    path = tmp_path_factory.mktemp("saved") / "saved"
    model, _ = saved_again("t5", hugging_face("t5"), path)
    return path, model


def without_rules(tree: dict[str, Any]) -> None:
    tree["normalizer"] = None


def with_others(tree: dict[str, Any]) -> None:
    tree["normalizer"] = {"type": "Sequence", "normalizers": [tree["normalizer"], {"type": "Lowercase"}]}


def with_other_unknown(tree: dict[str, Any]) -> None:
    tree["model"]["unk_id"] = 1


def with_words(tree: dict[str, Any]) -> None:
    tree["model"] = {"type": "WordLevel", "vocab": {}, "unk_token": "<unk>"}


def without_space(tree: dict[str, Any]) -> None:
    tree["pre_tokenizer"] = None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_rules, "lacks the rules for characters"),
        (with_others, "lacks the rules for characters, or has others"),
        (with_other_unknown, "its unknown piece is '</s>'"),
        (with_words, "neither scores nor merges"),
        (without_space, "does not add a space"),
        (lambda tree: tree.pop("model"), "it is damaged"),
    ],
)
def test_where_a_part_is_missing_the_option_is_named(
    saved_t5: tuple[Path, Path], change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path, _ = saved_t5
    changed(path, tmp_path)
    tree = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    change(tree)
    write_json(tmp_path, "tokenizer.json", tree)
    with pytest.raises(ImporterError, match=rf"{message}.*\. Give the model itself with --tokenizer"):
        read_folder(tmp_path)


def test_a_missing_tokenizer_can_be_given(saved_t5: tuple[Path, Path], tmp_path: Path) -> None:
    path, model = changed(saved_t5[0], tmp_path / "t5"), saved_t5[1]
    (path / "tokenizer.json").unlink()
    with pytest.raises(ImporterError, match=r"lacks spiece\.model or .*; give it with --tokenizer"):
        read_folder(path)
    (tmp_path / "text").write_text("a\n", encoding="utf-8")
    command = ["import", str(path), "--out", str(tmp_path / "run"), "--tokenizer", str(model)]
    succeeded(*command, "--text", str(tmp_path / "text"))
    record = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert "spiece.model" in record["provenance"]["sha256"]


def test_m2m_encodes_as_its_slow_tokenizer(hugging_face: Callable[[str], Path]) -> None:
    path = hugging_face("m2m")
    pieces = Processor(model_file=str(path / "sentencepiece.bpe.model"))
    ids = json.loads((path / "vocab.json").read_text(encoding="utf-8"))
    first = len(ids)

    def expected(text: str) -> list[int]:
        # transformers' own tokenizer, whose list of 100 languages is fixed
        names = pieces.encode(text, out_type=str)
        return [first + LANGUAGES.index("fr"), *(ids.get(name, ids["<unk>"]) for name in names), ids["</s>"]]

    model = read_folder(path)
    check(source(model, "fr", "en"), expected, TEXTS + EDGE_CASES)
    assert target(model).target_prefix("fr", "de") == (first + LANGUAGES.index("de"),)
    reference = transformers.M2M100Tokenizer(str(path / "vocab.json"), str(path / "sentencepiece.bpe.model"))
    for text in TEXTS + EDGE_CASES:
        assert expected(text)[1:] == reference(text).input_ids[1:]


@pytest.mark.parametrize("stated", ["by its class", "by its code"])
def test_small_100_has_the_target_language_before_a_text(
    hugging_face: Callable[[str], Path], stated: str, tmp_path: Path
) -> None:
    path = changed(hugging_face("m2m"), tmp_path)
    if stated == "by its class":
        write_json(path, "tokenizer_config.json", {"tokenizer_class": "SMALL100Tokenizer"})
    else:
        (path / "tokenization_small100.py").write_text("raise SystemExit", encoding="utf-8")
    small, large = read_folder(path), read_folder(hugging_face("m2m"))
    ours, other = source(small, "", "de"), source(large, "de", "fr")
    assert ours.encode_batch(TEXTS, special_tokens=True) == other.encode_batch(TEXTS, special_tokens=True)
    assert target(small).target_prefix("en", "de") == ()


def fairseq(pieces: Processor, text: str) -> list[int]:
    """Ids of pieces as fairseq numbers them: one more, and 3 for the unknown one."""
    return [index + 1 if index else 3 for index in pieces.encode(text)]


ENCODED: dict[str, tuple[str, str, Callable[[Processor, str], list[int]]]] = {
    "nllb": ("fr", "", lambda pieces, text: [len(pieces) + 2, *fairseq(pieces, text), 2]),
    "mbart": ("en", "", lambda pieces, text: [*fairseq(pieces, text), 2, len(pieces) + 1]),
    "mbart_50": ("en", "", lambda pieces, text: [len(pieces) + 1, *fairseq(pieces, text), 2]),
    "t5": ("", "", lambda pieces, text: [*pieces.encode(text), 1]),
    "umt5": ("", "", lambda pieces, text: [*pieces.encode(text), 1]),
    "madlad": ("", "zh_Hant", lambda pieces, text: [*pieces.encode(f"<2zh_Hant> {text}"), 1]),
}
"""Languages of a source and a target, and the ids of a text, from the SentencePiece model."""


@pytest.mark.parametrize("name", ENCODED)
def test_ids_are_those_of_the_pieces(hugging_face: Callable[[str], Path], name: str) -> None:
    path, (source_language, target_language, expected) = hugging_face(name), ENCODED[name]
    pieces = Processor(model_file=str(next(path.glob("*.model"))))
    texts = TEXTS + [text for text in EDGE_CASES if name != "madlad" or not text.startswith(" ")]
    tokenizer = source(read_folder(path), source_language, target_language)
    check(tokenizer, lambda text: expected(pieces, text), texts)


def test_nllb_has_languages_of_several_scripts(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("nllb"), tmp_path, "tokenizer_config.json", legacy_behaviour=True)
    text = read_folder(path).text
    assert (text.source_prefix, text.source_suffix) == ((), ("</s>", SOURCE_LANGUAGE))
    tokenizer = target(read_folder(hugging_face("nllb")))
    for language, token in (("zh-Hant", "zho_Hant"), ("zh", "zho_Hans"), ("fra_Latn", "fra_Latn")):
        assert tokenizer.tokens(tokenizer.target_prefix("fr", language)) == [token]
    with pytest.raises(OptionError, match=r"`target_language` must be one of .*fra_Latn.* but is `it`"):
        tokenizer.target_prefix("fr", "it")


@pytest.mark.parametrize("name", ["mbart", "mbart_50"])
def test_mbart_has_the_language_where_it_belongs(hugging_face: Callable[[str], Path], name: str) -> None:
    model = read_folder(hugging_face(name))
    tokenizer = target(model)
    english = tokenizer.token_id("en_XX")
    assert english is not None
    assert tokenizer.bos_id == (2 if name == "mbart_50" else english + 1)
    assert tokenizer.target_prefix("en", "zh-CN") == ((english + 2,) if name == "mbart_50" else ())
    assert model.target_language == ("" if name == "mbart_50" else "fr")


def test_mbart_that_was_only_pretrained_is_refused(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("mbart"), tmp_path, decoder_start_token_id=2)
    (path / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ImporterError, match=r"`decoder_start_token_id` of config.json must be the language"):
        read_folder(path)


@pytest.mark.parametrize("only_json", [False, True])
def test_bart_is_a_byte_level_bpe(hugging_face: Callable[[str], Path], only_json: bool, tmp_path: Path) -> None:
    path = changed(hugging_face("bart"), tmp_path)
    files = [str(path / name) for name in ("vocab.json", "merges.txt")]
    reference = tokenizers.ByteLevelBPETokenizer(*files, add_prefix_space=False)
    if only_json:
        reference.save(str(path / "tokenizer.json"))
        for file in files:
            Path(file).unlink()
    tokenizer = source(read_folder(path))
    texts = TEXTS + EDGE_CASES + SPECIAL
    check(tokenizer, lambda text: [0, *reference.encode(text).ids, 2], texts)
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts


def test_entries_follow_the_pieces_of_t5(hugging_face: Callable[[str], Path]) -> None:
    pieces = Processor(model_file=str(hugging_face("t5") / "spiece.model"))
    tokenizer = source(read_folder(hugging_face("t5")))
    assert tokenizer.token_id("<extra_id_99>") == len(pieces)
    assert tokenizer.vocab_size == len(pieces) + 128
    assert tokenizer.decode([len(pieces), len(pieces) + 127]) == ""


def test_words_that_were_added_are_named(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("t5"), tmp_path)
    decoder = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))["added_tokens_decoder"]
    first = 1 + max(map(int, decoder))
    words = {str(first): {"content": "{", "special": False}, str(first + 1): {"content": "}", "special": False}}
    write_json(path, "tokenizer_config.json", {"added_tokens_decoder": {**decoder, **words}})
    assert read_folder(hugging_face("t5")).notes == ()
    assert read_folder(path).notes == ("2 tokens that were added are read as other text is: `{`, `}`.",)


def test_the_tokenizer_of_another_model_is_refused(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("t5"), tmp_path / "t5")
    shutil.copy(hugging_face("nllb") / "sentencepiece.bpe.model", path / "spiece.model")
    with pytest.raises(ImporterError, match="`eos_token_id` is 1, which is `<s>` in the vocabulary, but `</s>` ends"):
        read_folder(path)


@pytest.mark.parametrize("stating", ["tokenizer_config.json", "config.json"])
def test_byt5_encodes_bytes(hugging_face: Callable[[str], Path], stating: str, tmp_path: Path) -> None:
    path = hugging_face("byt5")
    if stating == "config.json":
        path = changed(path, tmp_path, tokenizer_class="ByT5Tokenizer")
        write_json(path, "tokenizer_config.json", {"extra_ids": 125})
    reference = transformers.ByT5Tokenizer()
    tokenizer = source(read_folder(path))
    texts = TEXTS + EDGE_CASES
    check(tokenizer, lambda text: reference(text).input_ids, texts)
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts


@pytest.mark.parametrize("architecture", ["marian", "m2m", "nllb", "mbart_50", "bart", "t5", "madlad", "byt5"])
def test_special_tokens_in_text_are_text(hugging_face: Callable[[str], Path], architecture: str) -> None:
    model = read_folder(hugging_face(architecture))
    tokenizer = target(model)
    special = {tokenizer.token_id(name) for name in (*model.text.special_tokens, *model.text.languages.values())}
    special -= {tokenizer.unk_id}
    for text in SPECIAL:
        assert special.isdisjoint(tokenizer.encode(text))


# Refused.


@pytest.mark.parametrize(
    ("architecture", "file"),
    [
        ("marian", "source.spm"),
        ("marian", "vocab.json"),
        ("split_marian", "target_vocab.json"),
        ("m2m", "sentencepiece.bpe.model"),
        ("t5", "spiece.model"),
        ("bart", "merges.txt"),
    ],
)
def test_a_missing_file_is_named(
    hugging_face: Callable[[str], Path], architecture: str, file: str, tmp_path: Path
) -> None:
    path = changed(hugging_face(architecture), tmp_path)
    (path / file).unlink()
    expected = "tokenizer.json" if file == "merges.txt" else file
    with pytest.raises(ImporterError, match=f"lacks .*{expected}"):
        read_folder(path)


def test_a_vocabulary_of_another_size_is_refused(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("marian"), tmp_path)
    ids = json.loads((path / "vocab.json").read_text(encoding="utf-8"))
    write_json(path, "vocab.json", {**ids, "surplus": len(ids)})
    with pytest.raises(ImporterError, match=r"The vocabulary has [\d,]+ entries with ids up to .* do not fit"):
        read_folder(path)


def test_languages_must_be_listed(hugging_face: Callable[[str], Path], tmp_path: Path) -> None:
    path = changed(hugging_face("nllb"), tmp_path)
    (path / "special_tokens_map.json").unlink()
    with pytest.raises(ImporterError, match="does not list the languages"):
        read_folder(path)


# Languages and licenses.


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("fr", ["fr"]),
        ("fra", ["fr"]),
        ("fra_Latn", ["fr"]),
        ("fr_XX", ["fr"]),
        ("zho_Hans", ["zh"]),
        ("zho_Hant", ["zh-Hant"]),
        ("cmn_Hant", ["zh-Hant"]),
        ("zh_CN", ["zh-CN", "zh"]),
        ("pt_br", ["pt-BR", "pt"]),
        ("kor_Hang", ["ko"]),
        ("srp_Cyrl", ["sr"]),
        ("srp_Latn", ["sr-Latn"]),
        ("kab", ["kab"]),
        ("a b", []),
        ("zxx_xx_dtynoise", []),
    ],
)
def test_codes_have_tags(code: str, expected: list[str]) -> None:
    assert tags(code) == expected


def test_a_code_of_the_model_keeps_its_meaning() -> None:
    assert with_tags({"zho_Hans": "A", "zh": "B"}) == {"zho_Hans": "A", "zh": "B", "zho": "A"}
    assert with_tags({"pt_PT": "A", "pt_BR": "B"}) == {
        "pt_PT": "A",
        "pt_BR": "B",
        "pt-PT": "A",
        "pt": "A",
        "pt-BR": "B",
    }


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_every_language_of_nllb_is_found_without_its_script(every: int) -> None:
    """Other scripts than the usual one (``sat_Beng``), and codes that became those of another (``ajp``, ``twi``)."""
    languages = with_tags({code: code for code in FAIRSEQ_LANGUAGE_CODES})
    for code in {"sat_Beng", "ajp_Arab", "twi_Latn", *FAIRSEQ_LANGUAGE_CODES[::every]}:
        language = code.partition("_")[0]
        found = languages[matching_code(language, languages) or ""]
        assert found.partition("_")[0] == language
        assert languages[matching_code(code.replace("_", "-").lower(), languages) or ""] == code


@pytest.mark.parametrize(
    ("card", "license_name"),
    [
        ("---\nlicense: cc-by-4.0\ntags:\n- translation\n---\n# Model\n", "cc-by-4.0"),
        ("---\r\nlicense:\r\n- mit\r\n- apache-2.0\r\n---\r\n", "mit, apache-2.0"),
        ("---\nlicense: [\n---\n", ""),
        ("---\n- no mapping\n---\n", ""),
        ("license: mit", ""),
        (None, ""),
    ],
)
def test_the_license_is_that_of_the_card(tmp_path: Path, card: str | None, license_name: str) -> None:
    write_json(tmp_path, "config.json", {"model_type": "marian"})
    if card is not None:
        (tmp_path / "README.md").write_text(card, encoding="utf-8", newline="")
    assert open_folder(tmp_path).license() == license_name
