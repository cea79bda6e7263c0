"""What is checked of a model of another package before it is trained."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from torch import Tensor

from edgeformer import families
from edgeformer.config import load_recipe
from edgeformer.data.corpora import load_corpus
from edgeformer.errors import ConfigError
from edgeformer.model.base import EncoderDecoder, State
from edgeformer.model.families import TRANSFORMER
from edgeformer.model.transformer.model import Transformer
from edgeformer.train import setup
from edgeformer.train.setup import PRETRAIN_CHECKS, create_run, pretrain_checks
from edgeformer_runtime.errors import ModelError
from tests.commands import run, succeeded
from tests.conftest import ROOT
from tests.edgeformer.trainings import write_recipe

SAID = "Checking that `own` can be exported"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus, and a recipe of a family that another package could have declared."""
    monkeypatch.setattr(families, "REGISTERED", {"own": replace(TRANSFORMER, name="own")})
    for family in ("own", "transformer"):
        write_recipe(tmp_path, family)
    return tmp_path


def begin(folder: Path, family: str) -> list[str]:
    """Create a run, and return what is said."""
    recipe, said = load_recipe(str(folder / f"{family}.json")), list[str]()
    create_run(folder / "run", recipe, load_corpus(recipe.data, folder), report=said.append)
    return said


def declare(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Install checks under the names of their functions."""
    entries = [EntryPoint(name=value, value=value, group=PRETRAIN_CHECKS) for value in values]
    monkeypatch.setattr(setup, "entry_points", lambda group: entries if group == PRETRAIN_CHECKS else [])


def refuse(model: EncoderDecoder) -> None:
    assert isinstance(model, Transformer)
    raise ModelError("The model's `step` cannot be traced: for a reason.")


def test_a_model_that_cannot_be_exported_is_not_trained_unless_told_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, f"{__name__}:refuse")
    arguments: list[str | Path] = ["train", folder / "own.json", "--data", folder, "--out", folder / "run"]
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, f"{SAID}\n")
    assert result.stderr == (
        "Error: The model's `step` cannot be traced: for a reason. To train this model all the same, give "
        "--no-export-check.\n"
    )
    assert not (folder / "run").exists()
    assert SAID not in succeeded(*arguments, "--no-export-check").output


@pytest.mark.parametrize(
    ("check", "family", "count"), [(f"{__name__}:refuse", "transformer", 1), ("not_installed:check", "own", 0)]
)
def test_neither_own_families_nor_any_without_the_exporter_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, check: str, family: str, count: int
) -> None:
    declare(monkeypatch, check)
    assert len(pretrain_checks()) == count
    assert begin(folder, family) == []


@pytest.mark.slow
def test_the_exporters_check_traces_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declare(monkeypatch, *project["entry-points"][PRETRAIN_CHECKS].values())
    encode = Transformer.encode

    def reads_values(self: Transformer, source: Tensor, source_length: Tensor) -> State:
        return encode(self, source if source_length.max() > 3 else source.clone(), source_length)

    with monkeypatch.context() as context:
        context.setattr(Transformer, "encode", reads_values)
        with pytest.raises(
            ConfigError, match=r"`encode` cannot be traced: GuardOnDataDependentSymNode: .*the rules in"
        ):
            begin(folder, "own")
    assert begin(folder, "own") == [SAID]
