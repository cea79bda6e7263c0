"""CTranslate2's files: all versions are read; what is damaged or cannot be represented is refused in one sentence.

Files before version 6 are written here, since the package writes the latest only; that it reads them too proves them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

from ctranslate2.specs import TransformerSpec

from edgeformer.errors import ImporterError
from edgeformer.importers.ctranslate2.importer import read_ctranslate2
from edgeformer.importers.ctranslate2.vocabularies import read_tokens
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import run_translator
from edgeformer_runtime.tokenizers import Tokenizer
from tests.commands import error
from tests.importers import hugging_face_models
from tests.importers.ctranslate2_models import SHARED, arrays_file, fill, save, write_model_file
from tests.importers.ctranslate2_oracle import compare, sources

Arrays = dict[str, NDArray[Any]]


def plain(folder: Path, quantization: str | None = None, *, heads: int = 8) -> Arrays:
    """Write a model as OpenNMT-tf has them, without settings of its own; return its arrays."""
    spec: Any = TransformerSpec.from_config((2, 2), heads)
    fill(spec, 7, (len(SHARED), len(SHARED)))
    save(spec, folder, (SHARED,), quantization)
    with np.load(arrays_file(folder)) as arrays:
        return dict(arrays)


# Versions.


def without_settings(arrays: Arrays) -> Arrays:
    """What files had before models stated numbers of heads and the like."""
    return {name.replace("embeddings_0", "embeddings"): array for name, array in arrays.items() if array.ndim}


def opennmt_tf_name(name: str) -> str:
    """What revision 1 called an array."""
    for new, old in (
        ("embeddings/weight", "w_embs"),
        ("layer_norm", "LayerNorm"),
        ("projection", "dense"),
        ("linear_0", "conv1d"),
        ("linear_", "conv1d_"),
        ("encoder/layer_0/self_attention", "encoder/layer_0/multi_head"),
        ("encoder/layer_1/self_attention", "encoder/layer_1/multi_head"),
        ("self_attention", "masked_multi_head"),
        ("attention", "multi_head"),
    ):
        name = name.replace(new, old)
    return f"transformer/{name.removesuffix('weight')}kernel:0" if name.endswith("weight") else f"transformer/{name}:0"


def version_1(path: Path, arrays: Arrays) -> None:
    renamed = {opennmt_tf_name(name): array for name, array in without_settings(arrays).items()}
    write_model_file(path, renamed, version=1)


def version_2(path: Path, arrays: Arrays) -> None:
    """Integers of 16 bits with the scale that was then fixed."""
    stored = without_settings(arrays)
    stored |= {
        name: np.rint(array * 1000).astype(np.int16) for name, array in stored.items() if name.endswith("weight")
    }
    write_model_file(path, stored, version=2, specification="TransformerBase", revision=2)


def version_3(path: Path, arrays: Arrays) -> None:
    """Settings of both sides together, and a shared table."""
    stored = without_settings(arrays) | {
        "num_heads": np.array(8, np.int8),
        "pre_norm": np.array(1, np.int8),
        "with_source_eos": np.array(1, np.int8),
        "with_target_bos": np.array(0, np.int8),
        "encoder/scale_embeddings": np.array(2.5, np.float32),
        "decoder/scale_embeddings": np.array(2.5, np.float32),
    }
    del stored["decoder/embeddings/weight"]
    alias = {"decoder/embeddings/weight": "encoder/embeddings/weight"}
    write_model_file(path, stored, version=3, revision=3, aliases=alias)


def version_4(path: Path, arrays: Arrays) -> None:
    stored = without_settings(arrays)
    stored = {name: array.astype(np.float16) for name, array in stored.items()} | {"num_heads": np.array(8, np.int16)}
    write_model_file(path, stored, version=4, revision=4)


def version_5(path: Path, arrays: Arrays) -> None:
    """Another name of the unknown token, and a start of the source."""
    settings = {"with_source_bos": np.array(1, np.int8), "unk_token": np.frombuffer(b"w7", np.int8)}
    write_model_file(path, arrays | settings, version=5, revision=6)


@pytest.mark.parametrize(
    "write",
    [
        version_3,
        *(pytest.param(write, marks=pytest.mark.slow) for write in (version_1, version_2, version_4, version_5)),
    ],
)
def test_old_versions(write: Callable[[Path, Arrays], None], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    arrays = plain(folder)
    write(folder / "model.bin", arrays)
    (folder / "config.json").unlink()
    (folder / "shared_vocabulary.json").unlink()
    # The unknown token, which comes last then, is not stated.
    tokens = [*SHARED[1:], "w60"] if write is version_5 else SHARED[1:]
    (folder / "shared_vocabulary.txt").write_text("".join(f"{token}\n" for token in tokens))
    model = read_model(folder, None)
    run = write_run(model.model, tmp_path / "run", model.origin, text=["w1 w2"])
    compare(run_translator(run, run.load_model()), folder, sources(60), around=False)
    text = model.model.text
    assert (text.bos, text.source_suffix) == (("</s>", ("</s>",)) if write is version_3 else ("<s>", ()))
    assert text.unk == ("w7" if write is version_5 else "<unk>")


# Vocabularies.


@pytest.mark.parametrize(
    ("name", "content", "tokens"),
    [
        ("v.json", '["<unk>", "\\u2028", "\\r", ""]', ["<unk>", "\u2028", "\r", ""]),
        ("v.txt", "<unk>\n\u2028\n\r\n\nlast", ["<unk>", "\u2028", "\r", "", "last"]),
        ("v.txt", "<unk>\r\nb\r\n", ["<unk>", "b"]),
        ("v.txt", "", []),
    ],
)
def test_vocabularies(name: str, content: str, tokens: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert read_tokens(tmp_path / name) == tokens


@pytest.mark.parametrize(
    ("name", "content"), [("v.json", b'{"a": 1}'), ("v.json", b"[1]"), ("v.json", b"["), ("v.txt", b"\xff")]
)
def test_damaged_vocabularies(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ImporterError, match="is damaged"):
        read_tokens(tmp_path / name)


def test_entries_that_are_empty_or_there_twice(tmp_path: Path) -> None:
    plain(tmp_path / "m")
    tokens = [*SHARED[:3], "", "w1", "w1", *SHARED[6:]]
    (tmp_path / "m" / "shared_vocabulary.json").write_text(json.dumps(tokens))
    imported = read_ctranslate2(tmp_path / "m")
    tokenizer = Tokenizer.from_content(imported.source_tokenizer, "t", imported.text)
    assert tokenizer.encode_batch(["w1 w3"]) == [[4, 6]]
    assert tokenizer.vocab_size == len(SHARED)


def settings_of(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "prefix", "suffix", "notes"),
    [
        ({}, (), (), 0),
        ({"add_source_eos": True, "layer_norm_epsilon": 1e-3}, (), ("</s>",), 0),
        ({"add_source_bos": True, "add_source_eos": True, "bos_token": "w5"}, ("w5",), ("</s>",), 0),
        ({"add_source_bos": True, "bos_token": "none"}, ("<unk>",), (), 0),
        ({"decoder_start_token": "</s>"}, ("<s>",), ("</s>",), 1),
        ({"decoder_start_token": "none"}, (), (), 0),
    ],
)
def test_settings_of_a_folder(
    changes: dict[str, Any], prefix: tuple[str, ...], suffix: tuple[str, ...], notes: int, tmp_path: Path
) -> None:
    plain(tmp_path / "m")
    settings_of(tmp_path / "m", **changes)
    imported = read_ctranslate2(tmp_path / "m")
    assert (imported.text.source_prefix, imported.text.source_suffix) == (prefix, suffix)
    assert len(imported.notes) == notes
    assert imported.model["norm_epsilon"] == changes.get("layer_norm_epsilon", 1e-5)
    assert imported.text.bos == {"none": "<unk>"}.get(changes.get("decoder_start_token", "<s>"), imported.text.bos)


def test_target_languages_are_chosen_as_in_the_original(tmp_path: Path) -> None:
    """A model of OPUS-MT with several, from ``transformers`` directly and by way of CTranslate2's converter."""
    pytest.importorskip("sentencepiece")
    from ctranslate2.converters import TransformersConverter

    hugging_face_models.marian(tmp_path / "original")
    converter = TransformersConverter(str(tmp_path / "original"), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "converted"))
    encoded = []
    for name, importer in (("original", "huggingface"), ("converted", "ctranslate2")):
        found = read_model(tmp_path / name, None, source_language="en", target_language="fr")
        assert found.importer == importer
        tokenizer = Tokenizer.from_content(found.model.source_tokenizer, "t", found.model.text).for_sources("en", "fr")
        texts = ["July", ">>deu<< July", "Ghana </s>"]
        tokens = [tokenizer.tokens(ids) for ids in tokenizer.encode_batch(texts, special_tokens=True)]
        encoded.append((found.model.text.languages, tokens))
    assert encoded[0] == encoded[1]
    assert all((tokens[0], tokens[-1]) == (">>fra<<", "</s>") for tokens in encoded[0][1])
    converted = read_ctranslate2(tmp_path / "converted")
    assert converted.text.suppress == (converted.text.bos,) == ("<s>",)
    assert not converted.weights["target_embedding.tokens.weight"][-1].any(), "it starts from a zero vector"
    assert len(converted.notes) == 1


# What cannot be represented.


def rewritten(folder: Path, arrays: Mapping[str, NDArray[Any]], **options: Any) -> Path:
    write_model_file(folder / "model.bin", arrays, version=6, **options)
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder/layer_0/self_attention/relative_position_keys": np.zeros((5, 4), np.float32)}, "Shaw et al"),
        ({"decoder/layer_0/self_attention/rotary_dim": np.array(4, np.int32)}, "rotary positions"),
        ({"decoder/alibi": np.array(1, np.int8)}, "ALiBi"),
        ({"decoder/layer_0/self_attention/num_heads_kv": np.array(1, np.int32)}, "fewer heads"),
        ({"encoder/embeddings_1/weight": np.zeros((5, 4), np.float32)}, "several features"),
        ({"decoder/project_in/weight": np.zeros((5, 4), np.float32)}, "another width"),
        ({"decoder/final_logit_softcapping": np.array(3, np.float32)}, "limited logits"),
        ({"decoder/other": np.array(3, np.float32)}, "`decoder/other`"),
        ({"decoder/activation": np.array(5, np.int8), "encoder/activation": np.array(5, np.int8)}, "activation 5"),
        ({"decoder/activation": np.array(1, np.int8)}, "different values of `activation`"),
        ({"encoder/num_heads": np.array(7, np.int16), "decoder/num_heads": np.array(7, np.int16)}, "7 heads"),
        ({"encoder/num_heads": np.zeros(3, np.int16)}, "must be a single number"),
        ({"decoder/layer_0/self_attention/queries_scale": np.array(0.3, np.float32)}, "scales attention"),
        ({"decoder/scale_embeddings": np.array(0, np.int8)}, "scale their embeddings differently"),
        ({"decoder/embeddings/weight": np.zeros((7, 32), np.float32)}, "7 embeddings, but 63 outputs"),
        ({"encoder/embeddings_0/weight": np.zeros((7, 32), np.float32)}, "63 entries, but the model has 7"),
        ({"decoder/layer_1/ffn/linear_1/weight": np.zeros((32, 48), np.int8)}, "no scale"),
        ({"decoder/layer_1/ffn/linear_1/weight": np.zeros((32, 48), np.int32)}, "not weights"),
        ({"decoder/layer_1/ffn/linear_1/weight": np.zeros((31, 48), np.float32)}, "instead of (32, 48)"),
        ({"decoder/layer_1/ffn/linear_1/weight": None}, "lacks the array `decoder/layer_1/ffn/linear_1/weight`"),
        ({"decoder/layer_1/ffn/linear_1/weight": np.full((32, 48), np.nan, np.float32)}, "not finite"),
    ],
)
def test_refused_models(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    arrays = {**plain(tmp_path / "m"), **changes}
    rewritten(tmp_path / "m", {name: array for name, array in arrays.items() if array is not None})
    command = ["import", str(tmp_path / "m"), "--out", str(tmp_path / "run"), "--json"]
    assert message in error(*command)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"specification": "WhisperSpec", "revision": 3}, "is a `WhisperSpec`"),
        ({"specification": "TransformerDecoderSpec"}, "only encoder–decoder Transformers"),
        ({"revision": 8}, "has the revision 8"),
        ({"aliases": {"a": "nothing"}}, "alias `a` of `nothing`"),
        (
            {"aliases": {f"decoder/embeddings_{index}/weight": "decoder/embeddings/weight" for index in range(99)}},
            "times as",
        ),
    ],
)
def test_refused_files(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    arrays = plain(tmp_path / "m")
    with pytest.raises(ImporterError, match=message):
        read_ctranslate2(rewritten(tmp_path / "m", arrays, **options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "ends too early"),
        (lambda data: data[:-1], "ends"),
        (lambda data: data + b"\0", "1 bytes follow its end"),
        (lambda data: b"\7" + data[1:], "version is 7"),
        (lambda data: data[:26] + b"\xff" * 4 + data[30:], "more than 100,000"),
    ],
)
def test_damaged_files(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    plain(tmp_path / "m")
    path = tmp_path / "m" / "model.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ImporterError, match=message):
        read_ctranslate2(tmp_path / "m")


def test_missing_and_surplus_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    plain(folder)
    settings_of(folder, decoder_start_token=None)
    with pytest.raises(ImporterError, match="leaves the decoder's start token to the caller"):
        read_ctranslate2(folder)
    settings_of(folder, decoder_start_token="<s>", unk_token="u" * 300)
    with pytest.raises(ImporterError, match="has a name that is not supported"):
        read_ctranslate2(folder)
    settings_of(folder, unk_token="<unk>", eos_token="</none>")
    with pytest.raises(ImporterError, match="lacks the end token `</none>`"):
        read_ctranslate2(folder)
    (folder / "config.json").write_text("[")
    with pytest.raises(ImporterError, match=r"config\.json` is damaged"):
        read_ctranslate2(folder)
    (folder / "config.json").unlink()
    for name in ("a.spm", "b.model"):
        (folder / name).write_bytes(b"")
    with pytest.raises(ImporterError, match=r"SentencePiece models a\.spm, b\.model"):
        read_ctranslate2(folder)
    (folder / "shared_vocabulary.json").unlink()
    with pytest.raises(ImporterError, match=r"no `shared_vocabulary\.json`"):
        read_ctranslate2(folder)
