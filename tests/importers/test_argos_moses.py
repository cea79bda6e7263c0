"""Argos Translate's older packages, segmented by sacremoses and subword-nmt: imported ones translate as Argos does."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")
pytest.importorskip("sacremoses", reason="the extra `moses` is not installed")

import ctranslate2
from ctranslate2.specs import TransformerSpec
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from edgeformer.errors import ImporterError
from edgeformer.importers.argos import read_argos
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.importers.tokenizers import moses_tokenizer
from edgeformer.quality.translators import open_translator
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translator import Translator
from tests.commands import succeeded
from tests.importers.ctranslate2_models import HEADS, fill, save
from tests.importers.marian_models import expected
from tests.importers.test_argos import packed

UNUSUAL = [
    "He said: \"It's John's -- isn't it?\" & left.",
    "‘Quoted’ “text” „here“ … «là» (and [there] {too}).",
    "Don't @ me: a.b@c.de, #tag, http://example.org/a?b=1&c=<2>#d",
    "Mr. Smith paid $5,300.50 (50 %) on 3.11.1999 at 10:30 a.m.",
    "你好，世界！ 日本語の文 한국어 문장",
    "😀 👩‍👩‍👧 ok 👍🏽!",
    "</s> <unk> <s> __fr__ wo@@ rd @@ &lt;b&gt; &amp; &#124; |",
    "l'homme d'aujourd'hui, jusqu'à l'été",
    "",
    "  \t\u00a0 ",
    "a\u0000b\u2028c\x1fd\u200be",
    "x" * 200,
    "wait.... what.. . ?!?! - -- --- 'tis 'em rock'n'roll",
    "½ ² x₁ – e\u0301 ẹ́ ﬁ ＡＢＣ １２３",
]
SIZE = 300


@cache
def sentences() -> list[str]:
    return [*UNUSUAL, *(case.source for case in expected("ssru")[: SIZE - len(UNUSUAL)])]


class Segmenter:
    """What Argos Translate does with text, written with the libraries that it uses."""

    def __init__(self, codes: str, source: str = "en", target: str = "fr") -> None:
        self._normalizer, self._tokenizer = MosesPunctNormalizer(source), MosesTokenizer(source)
        self._detokenizer, self._bpe = MosesDetokenizer(target), BPE(io.StringIO(codes))

    def encode(self, text: str) -> list[str]:
        tokenized = " ".join(self._tokenizer.tokenize(self._normalizer.normalize(text)))
        tokens: list[str] = self._bpe.segment_tokens(tokenized.strip("\r\n ").split(" "))
        return tokens

    def decode(self, tokens: list[str]) -> str:
        text: str = self._detokenizer.detokenize(" ".join(tokens).replace("@@ ", "").split(" "))
        return text


@cache
def learned() -> str:
    """BPE codes."""
    normalizer, tokenizer = MosesPunctNormalizer("en"), MosesTokenizer("en")
    text = "\n".join(" ".join(tokenizer.tokenize(normalizer.normalize(sentence))) for sentence in sentences())
    codes = io.StringIO()
    learn_bpe(io.StringIO(text), codes, 400)
    return codes.getvalue()


@cache
def entries() -> tuple[str, ...]:
    """Tokens of the sentences, without some of them, which are unknown."""
    segmenter = Segmenter(learned())
    tokens = sorted({token for sentence in sentences() for token in segmenter.encode(sentence)})
    return tuple(token for index, token in enumerate(tokens) if index % 17)


def package(folder: Path, **metadata: Any) -> Path:
    """An unpacked package with random weights; returns its folder."""
    root = folder / "translate-en_fr-1_0"
    source = ["<unk>", "<blank>", *entries()]
    target = ["<unk>", "<blank>", "<s>", "</s>", *entries(), "__fr__"]
    spec: Any = TransformerSpec.from_config((2, 2), HEADS)
    fill(spec, 8, (len(source), len(target)))
    save(spec, root / "model", (source, target), "int8")
    (root / "bpe.model").write_text(learned(), encoding="utf-8")
    (root / "metadata.json").write_text(json.dumps({"from_code": "en", "to_code": "fr", **metadata}))
    return root


@pytest.mark.parametrize("prefix", [pytest.param("", marks=pytest.mark.slow), "__fr__"])
def test_translations_are_those_of_argos(prefix: str, tmp_path: Path) -> None:
    root = package(tmp_path, target_prefix=prefix)
    found = read_model(packed(root), None)
    run = write_run(found.model, tmp_path / "run", found.origin, text=sentences()[:1])
    ours, argos = open_translator(run.path), Segmenter(learned())
    sources = [argos.encode(text) for text in sentences()]
    known = {"<unk>", *entries()}
    for text, tokens in zip(sentences(), sources, strict=True):
        assert ours.source_tokenizer.pieces(text) == tokens
        names = ours.source_tokenizer.tokens(ours.source_tokenizer.encode(text))
        assert names == [token if token in known else "<unk>" for token in tokens]
    theirs = ctranslate2.Translator(str(root / "model"), compute_type="float32", intra_threads=1)
    results = theirs.translate_batch(
        sources,
        target_prefix=[[prefix]] * len(sources) if prefix else None,
        max_batch_size=32,
        beam_size=4,
        length_penalty=0.2,
        max_decoding_length=16,
    )
    compared, given = 0, [prefix] if prefix else []
    translations = ours.translate(sentences(), max_length=16 - len(given), min_length=1 - len(given))
    for source, translation, result in zip(sources, translations, results, strict=True):
        (tokens,) = result.hypotheses
        if source and len(tokens) < 16:  # at the maximum length, CTranslate2 chooses from more hypotheses
            compared += 1
            assert [*given, *ours.target_tokenizer.tokens(translation.best.ids)] == tokens
            if not {"<unk>", "<s>"} & {*tokens}:
                assert translation.text == argos.decode(tokens).removeprefix(prefix).strip()
    assert compared > SIZE // 20


@pytest.mark.parametrize(
    ("version", "languages"),
    [
        ("#version: 0.1\n", ("en", "en")),
        ("", ("en", "en")),
        ("#version: 0.2.0\n", ("fr", "it")),
        ("#version: 0.2\n", ("de", "cs")),
        ("#version: 0.2\n", ("fi", "ga")),
        ("#version: 0.2\n", ("xx", "zt")),
        # Patterns of all Chinese characters take seconds to compile.
        pytest.param("#version: 0.2\n", ("zh", "ja"), marks=pytest.mark.slow),
        pytest.param("#version: 0.2\n", ("ja", "zh"), marks=pytest.mark.slow),
        pytest.param("#version: 0.2\n", ("ko", "en"), marks=pytest.mark.slow),
    ],
)
def test_text_is_segmented_and_restored_in_every_language(
    version: str, languages: tuple[str, str], tmp_path: Path
) -> None:
    codes = version + learned().partition("\n")[2]
    (tmp_path / "bpe.model").write_text(codes, encoding="utf-8")
    segmenter = Segmenter(codes, *languages)
    names = list(dict.fromkeys(token for text in sentences()[:60] for token in segmenter.encode(text)))
    ids = {name: index for index, name in enumerate(["<pad>", "<unk>", "<s>", "</s>", *names])}
    source, target = (
        Tokenizer.from_content(
            moses_tokenizer(
                tmp_path / "bpe.model",
                ids=ids,
                special_tokens=["<pad>", "<s>", "</s>"],
                unk_token="<unk>",
                language=language,
            ),
            "t.json",
        )
        for language in languages
    )
    for text in sentences()[:60]:
        tokens = segmenter.encode(text)
        encoded = source.encode(text)
        assert source.tokens(encoded) == tokens
        assert target.decode(encoded) == segmenter.decode(tokens)


def test_unknown_tokens_are_replaced_as_argos_replaces_them(tmp_path: Path) -> None:
    text = read_argos(package(tmp_path)).target_tokenizer
    tokenizer = Tokenizer.from_content(text, "t.json", read_argos(tmp_path / "translate-en_fr-1_0").text)
    start = list(range(5, 9))
    ids = [*start, tokenizer.unk_id, *start]
    for piece in ("wo@@", "&apos;s", "x"):
        tokens = [*tokenizer.tokens(start), piece, *tokenizer.tokens(start)]
        assert tokenizer.decode_with(ids, {4: piece}) == Segmenter(learned()).decode(tokens)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (b"#version: 0.2\na b\nc\n", "line 3 is not two symbols"),
        (b"#version: 0.2\na b c\n", "line 2 is not two symbols"),
        (b"a  b\n", "line 1 is not two symbols"),
        (b"", "line 1 is not two symbols"),
        (b"#version: 0.2\n", "at least 1|length >= 1|>= 1"),
        (b"#version: 0.3\na b\n", "0.3"),
        (b"#version: 0.2\n" + b"a" * 129 + b" b\n", "length <= 128"),
        (b"\xff\xfe", "utf-8"),
    ],
)
def test_damaged_codes(codes: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bpe.model"
    path.write_bytes(codes)
    with pytest.raises(ImporterError, match=message):
        moses_tokenizer(path, ids={"<unk>": 0}, special_tokens=[], unk_token="<unk>", language="en")


def test_a_package_with_both_is_segmented_by_sentencepiece(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "sentencepiece.model").write_bytes(b"damaged")
    with pytest.raises(ImporterError, match="SentencePiece model"):
        read_argos(root)


@pytest.mark.slow
def test_a_package_is_imported_exported_verified_and_translates(tmp_path: Path) -> None:
    run, bundle = str(tmp_path / "run"), str(tmp_path / "bundle")
    (tmp_path / "text").write_text("\n".join(sentences()[20:40]) + "\n", encoding="utf-8")
    for command in (
        ["import", str(packed(package(tmp_path))), "--out", run, "--text", str(tmp_path / "text")],
        ["export", run, "--out", bundle, "--precision", "fp32"],
        ["verify", bundle, "--checkpoint", run],
    ):
        succeeded(*command)
    texts = sentences()[:60]
    exported = Translator.open(bundle, threads=1).translate(texts, max_length=16)
    original = open_translator(Path(run)).translate(texts, max_length=16)
    assert [item.best.ids for item in exported] == [item.best.ids for item in original]
    assert [item.text for item in exported] == [item.text for item in original]
