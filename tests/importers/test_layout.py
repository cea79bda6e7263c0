"""One list of a Transformer's modules: each toolkit's table has a name for all of them, with the shapes of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer.errors import ImporterError
from edgeformer.families import get_family, model_config
from edgeformer.importers.ctranslate2.importer import NAMES as CTRANSLATE2
from edgeformer.importers.hugging_face.families.bart_network import NAMES as BART
from edgeformer.importers.hugging_face.families.t5 import NAMES as T5
from edgeformer.importers.layout import modules, tied_tables
from edgeformer.importers.marian.files import find_files, has_options
from edgeformer.importers.marian.weights import NAMES as MARIAN
from edgeformer.importers.marian.weights import SSRU_NAMES
from edgeformer.importers.registry import Given

SIZES = {"d_model": 12, "d_ff": 20, "heads": 3, "encoder_layers": 2, "decoder_layers": 3, "positions": "none"}
T5_LIKE: dict[str, Any] = {
    "family": "transformer",
    "norm": "pre",
    "norm_type": "rms",
    "ffn_gated": True,
    "d_k": 5,
    "d_v": 5,
    **dict.fromkeys(("attention_bias", "attention_output_bias", "ffn_bias"), False),
    "relative_bias": {"buckets": 8, "max_distance": 16},
}
BART_LIKE: dict[str, Any] = {"family": "transformer", "embedding_norm": True, "decoder_d_ff": 28, "d_v": None}


@pytest.mark.parametrize(
    ("names", "section"),
    [
        (BART, BART_LIKE),
        (CTRANSLATE2, {**BART_LIKE, "norm": "pre", "final_norm": False}),
        (MARIAN, BART_LIKE),
        (MARIAN, {"family": "transformer", "final_norm": True}),
        (SSRU_NAMES, {"family": "ssru"}),
        (T5, {**T5_LIKE, "ffn_gated": False, "relative_bias": {"per_layer": True}}),
    ],
)
def test_every_weight_of_torch_has_a_name(names: Mapping[str, str], section: dict[str, Any]) -> None:
    section = {**SIZES, **section}
    config = model_config({name: value for name, value in section.items() if value is not None})
    model = get_family(section["family"]).build(config, 50, 60)
    expected = {
        name: tuple(weight.shape)
        for name, weight in model.named_parameters()
        if not name.startswith(("source_embedding.tokens", "target_embedding.tokens", "projection"))
    }
    found = {}
    for module in modules(section, names):
        found[f"{module.ours}.weight"] = module.shape
        if module.has_bias:
            found[f"{module.ours}.bias"] = module.shape[:1]
    assert found == expected


@pytest.mark.parametrize(
    ("equal", "tying", "names"),
    [
        ((0, 0, 0), "all", {"target_embedding"}),
        ((0, 0, 1), "inputs", {"target_embedding", "projection"}),
        ((0, 1, 1), "decoder", {"target_embedding", "source_embedding"}),
        ((0, 1, 2), "none", {"target_embedding", "source_embedding", "projection"}),
    ],
)
def test_tables_with_equal_values_are_one(equal: tuple[int, int, int], tying: str, names: set[str]) -> None:
    source, target, output = (np.full((4, 3), value, np.float32) for value in equal)
    found, weights = tied_tables(source, target, output)
    assert (found, {name.partition(".")[0] for name in weights}) == (tying, names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["srcvocab.enfr.spm", "trgvocab.enfr.spm"], ["srcvocab.enfr.spm", "trgvocab.enfr.spm"]),
        (["a.tgt.vocab.yml", "b.src.vocab.yml"], ["b.src.vocab.yml", "a.tgt.vocab.yml"]),
        (["a.vocab.yml", "src.vocab.yml"], ["src.vocab.yml", "a.vocab.yml"]),
        (["target-vocab.json", "vocab.json"], ["vocab.json", "target-vocab.json"]),
        (["a.vocab.yml", "b.vocab.yml"], None),
    ],
)
def test_the_name_of_one_vocabulary_tells_the_side_of_both(
    names: list[str], expected: list[str] | None, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    model = tmp_path / "model.npz"
    if expected is None:
        with pytest.raises(ImporterError, match=r"name them in decoder\.yml"):
            find_files(model, has_options, ".npz", Given())
    else:
        found = find_files(model, has_options, ".npz", Given()).text.vocabularies
        assert [file.name for file in found] == expected
