"""Model folders of Hugging Face that are damaged, hostile, or of another kind: refused with a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.hugging_face.generation import read_search
from edgeformer.importers.hugging_face.importer import read_folder
from edgeformer.importers.read import read_model
from edgeformer.importers.registry import choose_importer
from edgeformer.importers.run_folder import write_run
from tests.importers.hugging_face_models import changed, write_json
from tests.importers.marian_models import MARIAN


@pytest.fixture(scope="module")
def folders(hugging_face: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model folders by architecture. Do not modify them."""
    root = tmp_path_factory.mktemp("folders")
    for name in ("marian", "bart", "mbart", "t5", "t5_gated"):
        changed(hugging_face(name), root / name, "generation_config.json", max_length=20)
    return {folder.name: folder for folder in root.iterdir()}


@pytest.mark.parametrize(
    ("architecture", "values", "message"),
    [
        ("marian", {"model_type": "whisper"}, "`model_type` of config.json is 'whisper'; supported are bart, m2m_100"),
        ("marian", {"is_encoder_decoder": False}, "does not describe an encoder with a decoder"),
        ("marian", {"architectures": ["MarianForCausalLM"]}, "'MarianForCausalLM', which does not write text"),
        ("marian", {"auto_map": {"AutoModel": "model.Model"}}, "`auto_map`, which is not supported"),
        ("marian", {"quantization_config": {"bits": 4}}, "`quantization_config`, which is not supported"),
        ("marian", {"activation_function": "gelu_10"}, "`activation_function` of config.json is 'gelu_10'"),
        ("marian", {"normalize_before": True}, "`normalize_before` of config.json is true"),
        ("marian", {"add_final_layer_norm": True}, "`add_final_layer_norm` of config.json is true"),
        ("marian", {"static_position_embeddings": False}, "`static_position_embeddings` of config.json is false"),
        ("marian", {"decoder_attention_heads": 2}, "has 4 and 2 heads"),
        ("marian", {"scale_embedding": "yes"}, "`scale_embedding` must be true or false, but is a string"),
        ("marian", {"d_model": 64}, "has the shape .* instead of"),
        ("marian", {"d_model": 10**12}, "`d_model` must be at most 16777216"),
        ("marian", {"encoder_layers": 1_000_000}, r"lacks the array `encoder.layers.2"),
        ("marian", {"encoder_layers": 1}, "has a place for 16 of the arrays"),
        ("marian", {"eos_token_id": [0, 1]}, "`eos_token_id` must be one token of the vocabulary"),
        ("marian", {"decoder_start_token_id": 10**6}, "`decoder_start_token_id` must be one token"),
        ("bart", {"share_encoder_decoder_embeddings": False}, "`share_encoder_decoder_embeddings` of config.json"),
        ("bart", {"extra_pos_embeddings": 0}, "`extra_pos_embeddings` of config.json is 0"),
        ("t5", {"feed_forward_proj": "tanh"}, "`feed_forward_proj` of config.json is 'tanh'"),
        ("t5", {"feed_forward_proj": "gated-gelu", "is_gated_act": False}, "`is_gated_act` of config.json is false"),
        ("t5", {"dense_act_fn": "gelu_new"}, "`dense_act_fn` 'gelu_new' of config.json differ"),
        (
            "t5_gated",
            {"feed_forward_proj": "relu", "is_gated_act": False, "dense_act_fn": "relu"},
            "lacks the array `encoder",
        ),
    ],
)
def test_options_without_an_equivalent_are_named(
    folders: dict[str, Path], architecture: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = changed(folders[architecture], tmp_path / "model", **values)
    (folder / "generation_config.json").unlink()
    with pytest.raises(ImporterError, match=message):
        read_folder(folder)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"activation_function": "gelu_new"}, {"activation": "gelu_tanh"}),
        ({"activation_function": "quick_gelu"}, {"activation": "gelu_sigmoid"}),
        ({"activation_function": "silu"}, {"activation": "silu"}),
        ({"scale_embedding": True}, {"scale_embeddings": True}),
        ({"max_length": 20}, {"max_target_length": 19, "max_source_length": 96}),
        ({"max_new_tokens": 30, "max_length": 20}, {"max_target_length": 30}),
        ({"normalize_before": False, "normalize_embedding": True}, {"norm": "post", "embedding_norm": True}),
    ],
)
def test_options_are_honored(
    folders: dict[str, Path], values: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    folder = changed(folders["bart"], tmp_path / "model", **values)
    (folder / "generation_config.json").unlink()
    model = read_folder(folder).model
    assert {name: model[name] for name in expected} == expected


def test_settings_that_transformers_no_longer_has_are_without_effect(folders: dict[str, Path], tmp_path: Path) -> None:
    """OPUS-MT's models were published with them; `extra_pos_embeddings` is one more than the padding token."""
    expected = read_folder(folders["marian"])
    pad = json.loads((folders["marian"] / "config.json").read_text(encoding="utf-8"))["pad_token_id"]
    old = {
        "_num_labels": 3,
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "classif_dropout": 0.0,
        "do_blenderbot_90_layernorm": False,
        "extra_pos_embeddings": pad + 1,
        "gradient_checkpointing": False,
        "normalize_before": False,
        "normalize_embedding": False,
        "output_past": True,
        "static_position_embeddings": True,
    }
    model = read_folder(changed(folders["marian"], tmp_path / "model", **old))
    assert model.model == expected.model
    assert any("model.npz is exact" in note for note in model.notes)
    assert {"config.json", "model.safetensors", "source.spm", "vocab.json"} <= model.hashes.keys()


def test_search_settings_are_converted() -> None:
    config = {"pad_token_id": 1, "eos_token_id": [2], "decoder_start_token_id": 2}
    generation = {
        "num_beams": 6,
        "length_penalty": 0.8,
        "early_stopping": True,
        "bad_words_ids": [[1], [2], [5, 6]],
        "suppress_tokens": [7],
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.0,
        "max_length": 200,
    }
    search = read_search(config, generation, 10)
    assert (search.pad, search.end, search.start, search.forced) == (1, 2, 2, None)
    assert search.never == (1, 7)  # a ban of the end token has no effect in transformers
    assert (search.generation.beam_size, search.generation.length_penalty) == (6, 0.8)
    assert search.generation.length_includes_end
    assert search.max_steps == 199
    assert search.notes == (
        "1 of `bad_words_ids` have several tokens and are not excluded by default.",
        "`no_repeat_ngram_size` 3 of the model's generation settings is not a default here.",
    )
    assert not read_search(config, {"num_beams": 4}, 10).generation.early_stopping
    (note,) = read_search(config, {"num_beams": 4, "early_stopping": "never"}, 10).notes
    assert "never" in note


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ({"num_beams": 0}, "`num_beams` must be at least 1"),
        ({"num_beams": True}, "`num_beams` must be"),
        ({"length_penalty": float("nan")}, "`length_penalty` must be at"),
        ({"length_penalty": 11}, "`length_penalty` must be at most 10"),
        ({"max_length": -1}, "`max_length` must be"),
        ({"bad_words_ids": [[10]]}, "`bad_words_ids` must be one token"),
        ({"bad_words_ids": [3]}, r"`bad_words_ids\[0\]` must be a list, but is a whole number"),
        ({"suppress_tokens": list(range(3, 100))}, "exclude 97 tokens"),
        ({"forced_bos_token_id": "x"}, "`forced_bos_token_id` must be one token"),
    ],
)
def test_search_settings_are_checked(generation: dict[str, Any], message: str) -> None:
    config = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    with pytest.raises(ImporterError, match=message):
        read_search(config, generation, 10 if "suppress_tokens" not in generation else 100)


# Recognizing.


def test_folders_with_a_model_type_are_recognized(folders: dict[str, Path], tmp_path: Path) -> None:
    assert choose_importer(folders["t5"], None).name == "huggingface"
    for content in ("{}", '{"model_type": 3}'):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match="is not recognized"):
            choose_importer(tmp_path, None)
    for content in ("[]", "{"):
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
        with pytest.raises(ImporterError, match=r"config\.json"):
            read_model(tmp_path, None)


@pytest.mark.parametrize("present", ["mhc", "hc", "mc", "h", "c"])
def test_of_several_formats_in_a_folder_the_original_is_read(
    folders: dict[str, Path], present: str, tmp_path: Path
) -> None:
    """Those who convert a model often put the files beside the original ones."""
    folder = changed(folders["marian"], tmp_path / "model")
    (folder / "model.safetensors").unlink()  # a configuration stays in any case
    files = {"m": MARIAN / "ssru/model.npz", "h": folders["marian"] / "model.safetensors"}
    for letter, file in files.items():
        if letter in present:
            shutil.copy(file, folder)
    if "c" in present:
        (folder / "model.bin").write_bytes(b"\x06\0\0\0\x02\0s\0\x01\0\0\0\x01\0\0\0\x02\0a\0")
    names = {"m": "marian", "h": "huggingface", "c": "ctranslate2"}
    first, *others = (names[letter] for letter in present)
    assert choose_importer(folder, None).name == first
    if first == "huggingface":
        notes = read_model(folder, None).model.notes
        assert [f"the format {' and of '.join(others)}; --from" in note for note in notes].count(True) == len(others)
        assert not any("--from" in note for note in read_model(folder, first).model.notes)


# Weights.


def test_weights_must_be_there(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = changed(folders["t5"], tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ImporterError, match=r"has no weights: neither model\.safetensors nor pytorch_model\.bin"):
        read_folder(folder)
    for name, words in (("model.fp16.safetensors", "rename it"), ("model-00001-of-00002.safetensors", "in parts, but")):
        (folder / name).write_bytes(b"")
        with pytest.raises(ImporterError, match=words):
            read_folder(folder)
        (folder / name).unlink()


@pytest.mark.parametrize("wrapper", ["module.", "module._orig_mod.", "_forward_module.model."])
@pytest.mark.parametrize("architecture", ["marian", "t5"])
def test_wrappers_of_training_are_no_part_of_names(
    folders: dict[str, Path], architecture: str, wrapper: str, tmp_path: Path
) -> None:
    """DataParallel, torch.compile and Lightning put their own before each name."""
    expected = read_folder(folders[architecture]).weights
    folder = changed(folders[architecture], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    save_file({f"{wrapper}{name}": tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    weights = read_folder(folder).weights
    assert weights.keys() == expected.keys()
    assert all((weights[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "field `weight_map`"),
        ({"weight_map": {"a": 3}}, r"weight_map\["),
        ({"weight_map": {"a": "../model.safetensors"}}, "which is not a weight file of the folder"),
        ({"weight_map": {"a": "/etc/passwd"}}, "which is not a weight file of the folder"),
        ({"weight_map": {"a": "config.json"}}, "which is not a weight file of the folder"),
        ({"weight_map": {"a": "missing.safetensors"}}, "which the folder lacks"),
        ({"weight_map": {"a": "part.safetensors", "b": "same.safetensors"}}, "again"),
    ],
)
def test_an_index_names_files_of_the_folder(
    folders: dict[str, Path], index: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = changed(folders["t5"], tmp_path / "model")
    shutil.copyfile(folder / "model.safetensors", folder / "part.safetensors")
    (folder / "model.safetensors").rename(folder / "same.safetensors")
    write_json(folder, "model.safetensors.index.json", index)
    with pytest.raises(ImporterError, match=message):
        read_folder(folder)


def test_other_numbers_and_infinities_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = changed(folders["t5"], tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "shared.weight": tensors["shared.weight"].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(ImporterError, match=r"`shared.weight` has the type torch\.int8"):
        read_folder(folder)
    save_file({**tensors, "shared.weight": tensors["shared.weight"] / 0}, folder / "model.safetensors")
    found = read_model(folder, None)
    with pytest.raises(ImporterError, match="not finite numbers"):
        write_run(found.model, tmp_path / "run", found.origin, text=["a"])
    save_file({**tensors, "encoder.adapter.weight": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(ImporterError, match=r"a place for 1 of the arrays, such as `encoder.adapter.weight`"):
        read_folder(folder)
