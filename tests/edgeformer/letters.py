"""A training of seconds: a recipe, and three letters to the same letters backwards."""

from __future__ import annotations

from pathlib import Path

RECIPE = """
[model]
family = "{family}"
d_model = 16
d_ff = 16
heads = 2
encoder_layers = 1
decoder_layers = 1
[tokenizer]
kind = "word"
vocab_size = 30
[data]
train = ["letters.tsv"]
valid_size = 5
test_size = 5
[train]
max_steps = 4
batch_tokens = 64
validate_every = 2
validate_sentences = 2
threads = 1
"""


def small_training(folder: Path, family: str) -> None:
    """Write the text, and the recipe of a family under its name."""
    lines = [f"{one} {two} {three}\t{three} {two} {one}\n" for one in "abcd" for two in "abcd" for three in "ab"]
    (folder / "letters.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / f"{family}.toml").write_text(RECIPE.format(family=family), encoding="utf-8")
