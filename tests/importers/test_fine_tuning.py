"""Training that starts from an imported model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer.data.batches import EncodedPairs
from edgeformer.run.folder import RESUME_FILE, Run
from edgeformer_export.card import model_card
from edgeformer_export.export import export_run
from edgeformer_runtime.bundle.open import open_bundle
from tests.commands import succeeded
from tests.importers.marian_models import expected

STEPS = 2
SETTINGS = [
    *("--set", "data.valid_size=20", "--set", "data.test_size=5", "--set", f"train.max_steps={STEPS}"),
    *("--set", "train.validate_every=1", "--set", "train.learning_rate=1e-4", "--set", "train.threads=1"),
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Marian's own translations, which the model gives most of the probability."""
    file = tmp_path_factory.mktemp("text") / "pairs.tsv"
    lines = [f"{case.source}\t{case.beam4}\n" for case in expected("ssru") if case.beam4]
    file.write_text("".join(lines), encoding="utf-8")
    return file


def tune(init: Run, pairs: Path, out: Path, *more: str) -> tuple[int, str]:
    data = ["--set", f'data.train=["{pairs}"]']
    command = ["train", "--init", str(init.path), "--out", str(out), *data, *SETTINGS, *more]
    result = CliRunner().invoke(main, command)
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture(scope="module")
def tuned(marian_run: Run, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("tuned") / "run"
    code, output = tune(marian_run, pairs, out)
    assert code == 0, output
    assert "hardly learned" not in output
    return Run.open(out)


def test_training_starts_from_the_imported_weights(marian_run: Run, tuned: Run) -> None:
    first = tuned.info.validations[0]
    assert first.loss < 3  # of a random model: more than 7
    assert first.bleu > 50
    before, after = marian_run.load_model().state_dict(), tuned.load_model().state_dict()
    name = "encoder_layers.0.attention.query.weight"
    assert 0 < (before[name] - after[name]).abs().max() < 0.01
    assert tuned.info.text == marian_run.info.text
    assert tuned.recipe.model == marian_run.recipe.model
    assert tuned.info.provenance["initial"] == marian_run.info.provenance


def test_the_end_token_is_learned_although_it_is_padding(marian_run: Run, tuned: Run, tmp_path: Path) -> None:
    tokenizer = tuned.target_tokenizer
    assert tokenizer.pad_id == tokenizer.eos_id
    encoded = EncodedPairs.encode(
        [("Tom is here.", "Tom est ici."), ("Tom.", "Tom.")],
        tuned.source_tokenizer,
        tokenizer,
        max_source_length=99,
        max_target_length=99,
        special=tuned.special,
        folder=tmp_path,
    )
    batch = encoded.collate(torch.arange(2).numpy(), 0)
    lengths = (batch.labels >= 0).sum(1)
    for labels, length in zip(batch.labels.tolist(), lengths.tolist(), strict=True):
        assert labels[length - 1] == tokenizer.eos_id
        assert tokenizer.eos_id not in labels[: length - 1]
    assert lengths[1] < batch.labels.shape[1]


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_there_again(
    marian_run: Run, tuned: Run, pairs: Path, tmp_path: Path
) -> None:
    code, _ = tune(marian_run, pairs, tmp_path / "run", "--set", "train.max_steps=1")
    assert code == 0
    run = Run.open(tmp_path / "run")
    (run.checkpoints / RESUME_FILE).unlink()
    run.model_path.unlink()
    run.update(status="running", steps=0, minutes=0.0, validations=())
    command = ["train", "--out", str(run.path), "--resume", "--set", f"train.max_steps={STEPS}"]
    succeeded(*command)
    expected_weights = tuned.load_model().state_dict()
    for name, tensor in Run.open(run.path).load_model().state_dict().items():
        torch.testing.assert_close(tensor, expected_weights[name], rtol=0, atol=0)


def test_the_model_cannot_be_changed_and_text_is_needed(marian_run: Run, pairs: Path, tmp_path: Path) -> None:
    code, output = tune(marian_run, pairs, tmp_path / "run", "--set", "model.d_ff=64")
    assert code == 1
    assert "`model` is that of" in output
    for arguments, code, message in (
        (["--init", str(marian_run.path)], 1, "Say what to train on"),
        (["--init", str(tmp_path)], 1, "is not a run folder"),
        (["--init", str(marian_run.path), "--resume"], 2, "give only one of them"),
    ):
        result = CliRunner().invoke(main, ["train", *arguments, "--out", str(tmp_path / "run")])
        assert result.exit_code == code
        assert message in " ".join(result.output.split())
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_card_names_the_model_that_training_started_from(tuned: Run, tmp_path: Path) -> None:
    bundle = open_bundle(export_run(tuned, tmp_path / "bundle").bundle)
    card = model_card(bundle.manifest, bundle.nbytes)
    assert "trained from another model" in card
    assert "marian: ssru" in card
