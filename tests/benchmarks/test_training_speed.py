"""The speed of training: that both sides train the same on the same batches, not how fast."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner, Result

from edgeformer.config import load_recipe
from edgeformer_bench.studies import training_speed
from edgeformer_bench.studies.training_speed import SIDES, Round, main, measure

SECONDS = dict(zip(SIDES, (1.0, 2.0), strict=True))
RECIPE = """
[model]
family = "transformer"
d_model = 16
d_ff = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
tied_embeddings = "all"

[tokenizer]
kind = "word"
vocab_size = 40

[data]
train = ["letters.tsv"]
valid_size = 20
test_size = 20

[train]
batch_tokens = 64
accumulate = 2
warmup_steps = 4
learning_rate = 1e-2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe, and letters with the same letters backwards to train it on."""
    chance, path = random.Random(0), tmp_path_factory.mktemp("training")
    sources = (" ".join(chance.choices("abcdefgh", k=chance.randint(1, 9))) for _ in range(300))
    (path / "letters.tsv").write_text("".join(f"{source}\t{source[::-1]}\n" for source in sources), encoding="utf-8")
    (path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    return path


def run(folder: Path, *arguments: str | Path) -> Result:
    options = ["--data", folder, "--threads", "1", *arguments]
    return CliRunner().invoke(main, [str(folder / "recipe.toml"), *map(str, options)])


@pytest.mark.slow
def test_both_sides_learn_the_same(folder: Path) -> None:
    recipe = load_recipe(str(folder / "recipe.toml"))
    results = measure(recipe, folder, updates=20, rounds=2, threads=1)
    ours, plain = (results[side] for side in SIDES)
    assert [[entry.tokens for entry in rounds] for rounds in (ours, plain)] == [[ours[0].tokens] * 2] * 2
    assert ours[0].loss == pytest.approx(plain[0].loss, abs=0.5)
    assert ours[1].loss < ours[0].loss < 3.0


def test_the_table_has_medians_and_their_ratio(folder: Path) -> None:
    rounds = {side: [Round(12_000, factor * seconds, 2.5) for factor in (1, 2, 3)] for side, seconds in SECONDS.items()}
    with mock.patch.object(training_speed, "measure", return_value=rounds):
        result = run(folder)
    assert result.exit_code == 0, result.output
    assert all(figure in result.output for figure in ("12,000", "6,000", "4,000", "3,000", "2,000", "ratio 2.00"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.family=ssru", "must be `transformer`"),
        ("model.share_head_projection=true", "`torch.nn.Transformer` lacks"),
        ("model.tied_embeddings=none", "`torch.nn.Transformer` lacks"),
    ],
)
def test_models_that_torch_lacks_are_refused(folder: Path, setting: str, message: str) -> None:
    result = run(folder, "--set", setting)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    load_recipe(str(folder / "recipe.toml"), [setting])  # a recipe that can be trained
