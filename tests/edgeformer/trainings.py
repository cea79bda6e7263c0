"""Trainings of seconds: letters to the same letters backwards, and recipes of very small models."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from edgeformer.config import Recipe, recipe_from_tree

_TRANSFORMER = {"d_model": 16, "d_ff": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
SIZES: dict[str, dict[str, Any]] = {
    "transformer": _TRANSFORMER | {"tied_embeddings": "all"},
    "ssru": _TRANSFORMER,
    "lstm": {"d_model": 8, "hidden_size": 8},
    "lstm_attention": {"d_model": 8, "hidden_size": 8, "bidirectional": True},
}
"""Fields of small models, by family."""
LIMITS = {"max_steps": 6, "batch_tokens": 128, "warmup_steps": 4, "validate_every": 3, "validate_sentences": 5}


def write_letters(folder: Path) -> Path:
    """Write 400 sentences of one to nine letters, of which 346 are distinct."""
    chance = random.Random(0)
    path = folder / "letters.tsv"
    sources = [" ".join(chance.choices("abcdefgh", k=chance.randint(1, 9))) for _ in range(400)]
    path.write_text("".join(f"{source}\t{source[::-1]}\n" for source in sources), encoding="utf-8")
    return path


def recipe_tree(text: str | Path, family: str = "transformer", **train_fields: Any) -> dict[str, Any]:
    """A recipe with dropout, validated every 3 updates; an unknown family has the fields of the Transformer."""
    return {
        "model": {"family": family, **SIZES.get(family, SIZES["transformer"])},
        "tokenizer": {"kind": "word", "vocab_size": 40},
        "data": {"train": [str(text)], "valid_size": 20, "test_size": 20},
        "train": {**LIMITS, "average": 2, "threads": 1, **train_fields},
    }


def recipe(
    text: str | Path, model: dict[str, Any] | None = None, *, family: str = "transformer", **train_fields: Any
) -> Recipe:
    """The recipe of :func:`recipe_tree`, with other fields of the model."""
    tree = recipe_tree(text, family, **train_fields)
    tree["model"] |= model or {}
    return recipe_from_tree(tree, "test")


def write_recipe(folder: Path, family: str = "transformer") -> Path:
    """Write the text, and beside it a recipe that names it."""
    path = folder / f"{family}.json"
    path.write_text(json.dumps(recipe_tree(write_letters(folder).name, family)), encoding="utf-8")
    return path
