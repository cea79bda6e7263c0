"""Whole trainings of a very small model: resuming, stopping, failing."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch
from rich.console import Console
from torch import Tensor

from edgeformer.data.batches import BatchStream
from edgeformer.errors import CheckpointError, ConfigError, DataError, TrainingError
from edgeformer.model.transformer.model import Transformer
from edgeformer.run.folder import Run
from edgeformer.run.info import Validation
from edgeformer.run.weights import load_weights
from edgeformer.train.loss import Objective
from edgeformer.train.stopping import Interruption, TrainingLimit
from edgeformer.train.trainer import Trainer, train
from edgeformer.train.validation import Validator
from edgeformer_runtime.files import locked_folder
from tests.commands import two_processes
from tests.edgeformer.trainings import recipe, write_letters


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_letters(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 6 updates. Do not modify it."""
    return train(recipe(corpus), tmp_path_factory.mktemp("trained") / "run").run.path


@pytest.fixture
def six(trained: Path, tmp_path: Path) -> Run:
    """A copy of that run."""
    return Run.open(shutil.copytree(trained, tmp_path / "run"))


def resume_state(out: Path) -> dict[str, Any]:
    """The checkpoint, loaded without pickle."""
    state: dict[str, Any] = torch.load(out / "checkpoints" / "last.ckpt", weights_only=True)
    return state


def assert_same_training(one: Path, other: Path) -> None:
    """Bit-identical weights and optimizer, the same validations and final model."""
    first, second = resume_state(one), resume_state(other)
    assert first["progress"]["step"] == second["progress"]["step"]
    for name, tensor in first["model"].items():
        assert torch.equal(tensor, second["model"][name]), name
    moments = (state["optimizer"]["state"] for state in (first, second))
    for left, right in zip(*(m.values() for m in moments), strict=True):
        assert all(torch.equal(left[key], right[key]) for key in left)
    validations = (Run.open(path).info.validations for path in (one, other))
    figures = [[(v.step, v.loss, v.perplexity, v.bleu) for v in found] for found in validations]
    assert figures[0] == figures[1]
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@contextmanager
def terminated_at(number: int) -> Iterator[None]:
    """Send SIGTERM while a batch, counted from 0, is made."""
    batch = BatchStream.batch

    def interrupted_batch(self: BatchStream, index: int) -> Any:
        if index == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch(self, index)

    with mock.patch.object(BatchStream, "batch", interrupted_batch):
        yield


def test_resumed_training_equals_uninterrupted_training(corpus: Path, trained: Path, tmp_path: Path) -> None:
    run = train(recipe(corpus, max_steps=3), tmp_path / "resumed").run
    with (run.path / "metrics.csv").open("a") as file:
        file.write("5,1,,,,,9.9,,,\n7,")  # rows of lost updates
    stale = run.checkpoints / ".step-00000003.safetensors.0123456789abcdef.tmp"
    stale.touch()  # as of a process that was killed
    resumed = train(recipe(corpus), run.path, resume=True)
    assert (resumed.steps, resumed.finished) == (6, True)
    assert_same_training(trained, tmp_path / "resumed")
    assert not stale.exists()
    rows = (run.path / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows if row.split(",")[6]] == ["step", "3", "6"]


def test_a_run_whose_text_an_earlier_version_altered_can_be_used_but_not_resumed(six: Run) -> None:
    path = six.path
    tree = msgspec.json.decode((path / "recipe.json").read_bytes())
    tree["data"] |= {"same_digits": True, "french_spaces": False, "augment": {"names": 0.5, "quotes": 0.0}}
    (path / "recipe.json").write_bytes(msgspec.json.encode(tree))
    Run.open(path).load_model()
    with pytest.raises(CheckpointError, match=r"trained with `data\.augment` and `data\.same_digits`, which this"):
        train(None, path, resume=True)


def test_a_model_that_breaks_the_contract_is_not_trained(
    corpus: Path, six: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Transformer.step
    monkeypatch.setattr(
        Transformer, "step", lambda self, token, position, state: step(self, token, position * 0, state)
    )
    problem = "breaks the contract: .*`step` returns different logits than `forward`, first at step 1"
    with pytest.raises(ConfigError, match=problem):
        train(recipe(corpus), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(ConfigError, match=problem):
        train(recipe(corpus, max_steps=9), six.path, resume=True)
    assert Run.open(six.path).info.steps == 6


def test_signal_saves_between_validations_and_resume_goes_on(corpus: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 8, "accumulate": 2}
    train(recipe(corpus, **settings), tmp_path / "straight")
    with terminated_at(9):  # the second of the two batches of update 5
        result = train(recipe(corpus, **settings), tmp_path / "resumed")
    assert not result.finished
    assert result.stopped_by == Interruption(signal.SIGTERM)
    assert result.steps == resume_state(tmp_path / "resumed")["progress"]["step"] == 5
    interrupted = Run.open(tmp_path / "resumed")
    assert (interrupted.info.status, interrupted.info.stopped_by) == ("interrupted", "SIGTERM")
    with pytest.raises(CheckpointError, match="--resume"):
        interrupted.load_model()
    train(None, tmp_path / "resumed", resume=True)
    assert_same_training(tmp_path / "straight", tmp_path / "resumed")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_run_folder_holds_what_later_stages_need(corpus: Path, tmp_path: Path) -> None:
    output = io.StringIO()
    result = train(recipe(corpus, max_steps=9), tmp_path / "run", console=Console(file=output, width=200))
    run = Run.open(tmp_path / "run")
    info = run.info
    assert (info.status, info.steps, info.stopped_by) == ("finished", 9, "max_steps = 9")
    assert [validation.step for validation in info.validations] == [3, 6, 9]
    assert info.final == result.final
    assert info.final is not None
    assert info.final.loss <= min(validation.loss for validation in info.validations)
    assert info.tokens_per_second > 0
    assert info.provenance["name"] == "files"
    assert info.versions["torch"]
    assert set(run.sample) <= {tuple(line.split("\t")) for line in corpus.read_text().splitlines()}
    model = run.load_model()
    assert not model.training
    assert info.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        "last.ckpt",
        *(f"step-{step:08d}.safetensors" for step in (6, 9)),
    ]
    with (run.path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["valid_loss"]] == ["3", "6", "9"]
    assert "step 9  valid loss" in output.getvalue()
    assert info.filters is not None
    assert info.filters.total == 400
    assert info.filters.summary() in output.getvalue()


@pytest.mark.slow
def test_two_processes_equal_two_accumulated_batches(corpus: Path, tmp_path: Path) -> None:
    """Both make the same updates, up to the order of sums."""
    fields: dict[str, Any] = {"model": {"dropout": 0.0}}
    train(recipe(corpus, accumulate=2, **fields), tmp_path / "alone")
    (tmp_path / "recipe.json").write_bytes(msgspec.json.encode(recipe(corpus, **fields)))
    edgeformer = ("-c", "from edgeformer.cli import main; main()", "train")
    output = two_processes(*edgeformer, tmp_path / "recipe.json", "--out", tmp_path / "two")
    assert output.count("step 6  valid loss") == 1
    one, two = resume_state(tmp_path / "alone")["model"], resume_state(tmp_path / "two")["model"]
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=1e-4)
    assert Run.open(tmp_path / "two").info.status == "finished"
    assert output.count("validation loss") == 1

    two_processes(*edgeformer, "--out", tmp_path / "two", "--resume", "--set", "train.max_steps=9")
    assert Run.open(tmp_path / "two").info.steps == resume_state(tmp_path / "two")["progress"]["step"] == 9


def with_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let validations after updates 3, 6, … report given losses."""

    def validate(_validator: Validator, _model: Any, *, step: int, minutes: float) -> Validation:
        loss = losses[min(step // 3, len(losses)) - 1]
        return Validation(step=step, loss=loss, perplexity=1, bleu=0, exact_match=0, sentences=0, minutes=minutes)

    monkeypatch.setattr(Validator, "__call__", validate)


def test_patience_stops_and_the_best_checkpoints_are_kept(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [3.0, 1.0, 2.0, 4.0, 0.5])
    result = train(recipe(corpus, max_steps=30, patience=2), tmp_path / "run")
    assert (result.steps, result.stopped_by) == (12, TrainingLimit("patience", 2))
    names = {path.name for path in result.run.checkpoints.iterdir()}
    assert names == {"last.ckpt", "step-00000006.safetensors", "step-00000009.safetensors"}


def test_an_average_worse_than_its_best_checkpoint_is_not_used(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [1.0, 2.0])  # the average of both is validated as step 6: 2.0
    result = train(recipe(corpus), tmp_path / "run")
    assert result.run.info.averaged_steps == (3,)
    weights = (result.run.checkpoints / "step-00000003.safetensors").read_bytes()
    assert result.run.model_path.read_bytes() == weights


def test_the_last_checkpoints_are_averaged_although_earlier_ones_are_better(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [1.0, 3.0, 2.0])
    run = train(recipe(corpus, max_steps=9, average_of="last"), tmp_path / "run").run
    assert run.info.averaged_steps == (6, 9)
    one, other = (load_weights(run.build_model(), path).state_dict() for path in run.checkpoints.glob("step-*"))
    for name, tensor in run.load_model().state_dict().items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2)


def with_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock advance by some seconds whenever it is read."""
    readings = count(1)
    monkeypatch.setattr("time.monotonic", lambda: seconds * next(readings))


def test_max_minutes_counts_earlier_sessions(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_clock(monkeypatch, 1.0)
    first = train(recipe(corpus, max_steps=1000, max_minutes=0.5), tmp_path / "run")
    assert first.stopped_by == TrainingLimit("max_minutes", 0.5)
    assert 0 < first.steps < 30
    again = train(recipe(corpus, max_steps=1000, max_minutes=0.5), tmp_path / "run", resume=True)
    assert again.steps == first.steps
    more = train(recipe(corpus, max_steps=1000, max_minutes=1.0), tmp_path / "run", resume=True)
    assert first.steps < more.steps
    assert 1.0 <= more.run.info.minutes < 1.5


def learning_rates(run: Path) -> list[float]:
    """Learning rates in ``metrics.csv``, oldest first."""
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["learning_rate"]) for row in csv.DictReader(file) if row["learning_rate"]]


@pytest.mark.slow
def test_warm_up_and_cool_down_fit_into_the_minutes_also_when_resumed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_clock(monkeypatch, 0.1)
    monkeypatch.setattr("edgeformer.train.trainer.LOG_SECONDS", -math.inf)  # after every update
    output = io.StringIO()
    limits: dict[str, Any] = {
        "max_steps": 100_000,
        "max_minutes": 1.0,
        "warmup_steps": 20_000,
        "cooldown_steps": 40_000,
    }
    settings = recipe(corpus, **limits, validate_every=40)
    with terminated_at(50):
        first = train(settings, tmp_path / "run", console=Console(file=output, width=200))
    assert "ends after 100,000 updates or 1 min, whichever comes first: 20.0% of it is warm-up" in output.getvalue()
    assert not first.finished
    result = train(None, tmp_path / "run", resume=True)
    rates = learning_rates(tmp_path / "run")
    assert 80 < result.steps == len(rates) < 1000
    assert max(rates) > 0.95e-3
    assert 0 < rates[-1] < 0.1e-3
    assert max(abs(after - before) for before, after in pairwise(rates)) < 0.2e-3
    (group, other) = resume_state(tmp_path / "run")["optimizer"]["param_groups"]
    assert group["lr"] == other["lr"] == pytest.approx(rates[-1], rel=1e-5)


def test_a_plan_that_cannot_work_and_a_vocabulary_that_is_not_filled_are_said_first(
    corpus: Path, tmp_path: Path
) -> None:
    output = io.StringIO()
    settings = recipe(corpus, max_steps=2, warmup_steps=500)
    settings = msgspec.structs.replace(
        settings, tokenizer=msgspec.structs.replace(settings.tokenizer, vocab_size=20_000)
    )
    run = train(settings, tmp_path / "run", console=Console(file=output, width=200)).run
    before, _, _ = output.getvalue().partition("valid loss")
    assert "Warning: 500 updates of warm-up and 0 of cool-down do not fit into train.max_steps = 2." in before
    assert f"The corpus fills only {run.info.source_vocab_size:,} of the 20,000 entries of the" in before


@pytest.mark.parametrize(("rate", "warned"), [(1e-9, ["30", "45"]), pytest.param(1e-2, [], marks=pytest.mark.slow)])
def test_a_model_that_learns_nothing_is_reported_as_soon_as_the_warm_up_is_over(
    corpus: Path, tmp_path: Path, rate: float, warned: list[str]
) -> None:
    output = io.StringIO()
    model = {"d_model": 32, "d_ff": 64, "dropout": 0.0, "norm": "pre"}
    limits: dict[str, Any] = {"max_steps": 45, "validate_every": 15, "warmup_steps": 16}
    run = train(
        recipe(corpus, model, learning_rate=rate, batch_tokens=512, **limits),
        tmp_path / "run",
        console=Console(file=output, width=500),
    ).run
    first, *_, last = run.info.validations
    assert (last.loss < 0.9 * first.loss) == (not warned)
    text = output.getvalue()
    assert text.count("valid loss") == 4
    assert re.findall(r"step (\d+)  valid loss .*\nWarning: the model has hardly learned anything", text) == warned


def test_a_warm_up_by_default_stays_when_a_run_is_resumed_with_other_limits(corpus: Path, tmp_path: Path) -> None:
    train(recipe(corpus, max_steps=20, validate_every=12, warmup_steps=None), tmp_path / "run")
    longer = recipe(corpus, max_steps=24, validate_every=12, warmup_steps=None)
    run = train(longer, tmp_path / "run", resume=True).run
    assert Run.open(run.path).recipe.train.warmup_steps == 2
    assert learning_rates(run.path)[-1] == pytest.approx(1e-3 * (2 / 24) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("precision", "has_bf16"), [("fp32", True), ("bf16", True), pytest.param("bf16", False, marks=pytest.mark.slow)]
)
def test_training_validation_and_final_model_compute_alike(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, has_bf16: bool
) -> None:
    computed: dict[bool, set[bool]] = {True: set(), False: set()}
    features = Transformer.features

    def watched(self: Transformer, *inputs: Tensor) -> Tensor:
        computed[self.training].add(torch.is_autocast_enabled("cpu"))
        return features(self, *inputs)

    monkeypatch.setattr("edgeformer.train.setup.check_model", lambda model: None)
    monkeypatch.setattr(Transformer, "features", watched)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("edgeformer.train.processes.cpu_has_bf16", lambda: has_bf16)
    info = train(recipe(corpus, precision=precision, average=1), tmp_path / "run").run.info
    in_bf16 = precision == "bf16" and has_bf16
    assert computed == {True: {in_bf16}, False: {in_bf16}}
    assert info.final is not None
    assert info.final.loss == min(validation.loss for validation in info.validations)


def with_broken_batches(monkeypatch: pytest.MonkeyPatch, numbers: set[int]) -> None:
    """Make the loss of some batches, counted from 1, not a number."""
    forward, calls = Objective.forward, count(1)

    def broken_forward(self: Objective, *inputs: Tensor) -> Tensor:
        return forward(self, *inputs) * (float("nan") if next(calls) in numbers else 1.0)

    monkeypatch.setattr(Objective, "forward", broken_forward)


def test_divergence_names_the_step_and_keeps_the_checkpoint(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_broken_batches(monkeypatch, {5})
    with pytest.raises(
        TrainingError, match=r"in step 5 .* kept as `.*model\.safetensors`.* lower `train\.learning_rate`"
    ):
        train(recipe(corpus), tmp_path / "run")
    state = resume_state(tmp_path / "run")
    assert state["progress"]["step"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in state["model"].values())
    run = Run.open(tmp_path / "run")
    assert (run.info.status, run.info.steps, run.info.averaged_steps) == ("diverged", 3, (3,))
    assert not run.encoded.exists()
    assert run.info.stopped_by.startswith("The gradient became infinite or not a number in step 5")
    assert run.info.final is not None
    assert run.info.final.loss == run.info.validations[0].loss
    assert run.model_path.read_bytes() == (run.checkpoints / "step-00000003.safetensors").read_bytes()
    assert all(torch.isfinite(tensor).all() for tensor in run.load_model().state_dict().values())


def test_divergence_before_the_first_validation(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_broken_batches(monkeypatch, {1})
    with pytest.raises(TrainingError, match=r"in step 1 .* no checkpoint yet\. .*start again in another folder"):
        train(recipe(corpus), tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert (run.info.status, run.info.final) == ("diverged", None)
    assert not run.encoded.exists()
    with pytest.raises(CheckpointError, match=r"in step 1 .* start again in another folder"):
        run.load_model()


def test_a_validation_loss_that_is_no_number_counts_as_divergence(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [1.0, float("nan")])
    with pytest.raises(TrainingError, match=r"validation loss .* by step 6\. The best checkpoint so far was kept"):
        train(recipe(corpus), tmp_path / "run")
    info = Run.open(tmp_path / "run").info
    assert (info.status, info.averaged_steps, len(info.validations)) == ("diverged", (3,), 1)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: torch.save({"state_dict": {}, "global_step": 6}, path), "written by an earlier version of edge"),
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), r"last\.ckpt` is damaged"),
        (Path.unlink, r"has made 6 steps, but `.*last\.ckpt` is missing"),
    ],
    ids=["earlier", "damaged", "missing"],
)
def test_a_checkpoint_that_cannot_be_resumed_is_named(
    corpus: Path, six: Run, damage: Callable[[Path], object], problem: str
) -> None:
    model = six.model_path.read_bytes()
    damage(six.checkpoints / "last.ckpt")
    with pytest.raises(CheckpointError, match=problem):
        train(recipe(corpus, max_steps=9), six.path, resume=True)
    assert six.model_path.read_bytes() == model


def test_resume_refuses_another_recipe_and_names_the_keys(corpus: Path, trained: Path) -> None:
    other = recipe(corpus, {"d_ff": 48}, max_steps=20, learning_rate=1e-2)
    with pytest.raises(CheckpointError, match=r"these keys differ: model\.d_ff, train\.learning_rate\."):
        train(other, trained, resume=True)


def test_resume_may_change_how_training_ends(corpus: Path, six: Run) -> None:
    result = train(recipe(corpus, max_steps=9, cooldown_steps=2), six.path, resume=True)
    with (result.run.path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rates = {row["step"]: float(row["learning_rate"]) for row in csv.DictReader(file) if row["learning_rate"]}
    assert rates["9"] == pytest.approx(1e-3 * (4 / 9) ** 0.5 / 3, rel=1e-4)
    assert result.run.recipe.train.cooldown_steps == 2


def test_resume_refuses_other_text(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "letters.tsv"
    copy.write_bytes(corpus.read_bytes())
    train(recipe(copy, max_steps=1, validate_every=1), tmp_path / "run")
    copy.write_text(corpus.read_text() + "a b\tb a\n")
    with pytest.raises(CheckpointError, match="different text"):
        train(recipe(copy, max_steps=9, validate_every=1), tmp_path / "run", resume=True)


def test_a_run_is_trained_by_one_process_at_a_time(corpus: Path, six: Run) -> None:
    before = {path: path.read_bytes() for path in six.path.rglob("*") if path.is_file()}
    with locked_folder(six.path), pytest.raises(ConfigError, match="is being used by another process"):
        train(recipe(corpus, max_steps=9), six.path, resume=True)
    assert {path: path.read_bytes() for path in six.path.rglob("*") if path.is_file()} == before
    assert train(recipe(corpus, max_steps=9), six.path, resume=True).steps == 9


def test_resume_sets_the_recipe_on_every_process(corpus: Path, six: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "fit", lambda _: Interruption(signal.SIGTERM))
    for rank, steps in (("0", 9), ("1", 10)):
        monkeypatch.setenv("RANK", rank)
        result = train(recipe(corpus, max_steps=steps), six.path, resume=True)
        assert result.run.recipe.train.max_steps == steps
        assert Run.open(six.path).recipe.train.max_steps == 9, "only the first process writes"


def test_the_sample_is_spread_over_the_pairs_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short sentences come first, as in Tatoeba; the longest do not fit."""
    lines = [" ".join("abcd"[(number >> 2 * place) % 4] for place in range(4 + number // 40)) for number in range(240)]
    path = tmp_path / "sorted.tsv"
    path.write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr("edgeformer.train.trainer.SAMPLE_SIZE", 20)
    run = train(recipe(path, {"max_source_length": 9}, max_steps=1, validate_every=1), tmp_path / "run").run
    found = [lines.index(source) for source, _ in run.sample]
    assert len(found) == 20
    assert found == sorted(found)
    assert {len(source.split()) for source, _ in run.sample} == {4, 5, 6, 7, 8}
    assert max(after - before for before, after in pairwise(found)) <= 20  # 10, and what was split off or dropped
    assert run.info.filters is not None
    assert run.info.filters.total == 240


def test_what_cannot_begin_says_so(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no recipe"):
        train(None, tmp_path / "run", resume=True)
    with pytest.raises(ConfigError, match="A recipe is needed"):
        train(None, tmp_path / "run")
    with pytest.raises(DataError, match="None of"):
        train(recipe(corpus, {"max_source_length": 1, "max_target_length": 1}), tmp_path / "run")
