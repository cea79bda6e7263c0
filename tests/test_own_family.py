"""The guide ``docs/your-own-model.md``, followed by a stranger: the code, the package and the commands on that page."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("onnxscript")

import torch

from edgeformer import families
from edgeformer.config import load_recipe, recipe_from_tree
from edgeformer.data.catalog import CORPORA
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import ConfigError
from edgeformer.families import Family, get_family, model_config, register
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.session import TorchSession
from edgeformer.run.folder import Run
from edgeformer_export.parity.comparison import compare_logits
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.precision import PRECISIONS
from tests.commands import python
from tests.conftest import ROOT
from tests.factory import PAIRS, randomise

DOCUMENT = (ROOT / "docs" / "your-own-model.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE))
"""Code blocks of the page whose first line names a file."""
COMMANDS = re.search(r"^```sh\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)
TEXT = PAIRS[::7]
"""Sentences to translate."""

SMALLER: dict[str, dict[str, Any]] = {
    "model": {"d_model": 48, "encoder_layers": 3, "max_source_length": 60, "max_target_length": 40},
    "tokenizer": {"vocab_size": 300},
    "data": {"corpus": "", "train": ["corpus.tsv"], "valid_size": 9, "test_size": 9},
    "train": {
        "max_steps": 160,
        "batch_tokens": 400,
        "learning_rate": 0.01,
        "warmup_steps": 20,
        "cooldown_steps": 80,
        "validate_every": 160,
        "threads": 1,
    },
}
"""What the page's recipe has larger, so that it trains in seconds."""

RUN_COMMANDS = """
import json, os, sys
from click.testing import CliRunner
from edgeformer.cli import main

os.chdir(sys.argv[1])
results = {}
for line, arguments in json.loads(sys.argv[2]).items():
    result = CliRunner().invoke(main, arguments)
    if result.exit_code:
        sys.exit(f"edgeformer {line}: {result.stderr} {result.exception!r}")
    results[line] = result.stdout
print(json.dumps({"results": results, "modules": sorted(sys.modules)}))
"""
"""Runs several commands in one interpreter, which saves loading torch for each."""


@dataclass(frozen=True)
class Stranger:
    """What is left in the stranger's folder, and what the commands printed."""

    folder: Path
    stdout: dict[str, str]
    """By command line, as on the page."""
    device_modules: list[str]
    """Modules loaded where only bundles were used."""

    def json(self, line: str) -> Any:
        """What a command printed, parsed."""
        return json.loads(self.stdout[line])


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Installs the page's package outside the repository and runs the page's commands, on a smaller recipe."""
    folder = tmp_path_factory.mktemp("stranger")
    package = folder / "site-packages"
    install(package)
    write_inputs(folder)
    assert COMMANDS is not None
    lines = [line.removeprefix("edgeformer ") for line in COMMANDS[1].splitlines()]
    prepare, *lines = lines
    assert prepare.startswith(f"data prepare {tomllib.loads(FILES['recipe.toml'])['data']['corpus']} ")
    workshop = [line for line in lines if re.match(r"train|export|verify|evaluate run", line)]
    device = [line for line in lines if line not in workshop]

    def run(chosen: list[str], **environment: str) -> dict[str, Any]:
        arguments = {line: [*shlex.split(line), *further_options(line)] for line in chosen}
        finished = python(RUN_COMMANDS, folder, json.dumps(arguments), check=False, **environment)
        assert finished.returncode == 0, finished.stderr
        result: dict[str, Any] = json.loads(finished.stdout)
        return result

    made = run(workshop, PYTHONPATH=str(package))
    used = run(device, PYTHONPATH="")
    return Stranger(folder, made["results"] | used["results"], used["modules"])


def install(package: Path) -> None:
    """What ``pip install`` would leave: the module, and the entry points of the page's ``pyproject.toml``."""
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    info = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (package / "conv_gru.py").write_text(FILES["conv_gru.py"], encoding="utf-8")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections), encoding="utf-8")


def write_inputs(folder: Path) -> None:
    """The smaller recipe, its corpus, and the text that the page's commands translate."""
    recipe = tomllib.loads(FILES["recipe.toml"])
    plain = {key: value for key, value in recipe.items() if not isinstance(value, dict)}
    sections = {key: {**recipe[key], **values} for key, values in SMALLER.items()}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    (folder / "recipe.toml").write_text("\n".join(lines), encoding="utf-8")
    (folder / "corpus.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), encoding="utf-8")
    (folder / "dates").mkdir()
    for index, name in enumerate(("test.en", "test.fr")):
        (folder / "dates" / name).write_text("".join(f"{pair[index]}\n" for pair in TEXT), encoding="utf-8")


def further_options(line: str) -> list[str]:
    """Options that make a command's output easy to read for a test, and short to run."""
    command, target, *_ = line.split()
    return {
        "evaluate": ["--json", "--output", f"{target}.txt"],
        "verify": ["--json", "--threads", "1"],
        "inspect": ["--json"],
        "bench": ["--repeat", "1", "--threads", "1", "--json", "-"],
    }.get(command, [])


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ["fp32", "portable"])
def test_fp32_output_is_torchs_token_by_token(stranger: Stranger, bundle: str) -> None:
    report = stranger.json(f"verify {bundle} --checkpoint run")
    assert report["passed"], report["problems"]
    assert report["golden"]["cases"] > 0
    parity = report["parity"]
    assert parity["logits"]["positions"] > 1000
    assert 0 < parity["logits"]["max_difference"] <= PRECISIONS["fp32"].tolerances.logits
    assert parity["attention_difference"] <= PRECISIONS["fp32"].tolerances.logits
    assert [entry["beam_size"] for entry in parity["tokens"]] == [1, 4]
    for entry in parity["tokens"]:
        assert entry["sentences"] == len(PAIRS) - 18
        assert entry["identical"] == entry["sentences"]


@pytest.mark.slow
def test_text_is_torchs_text(stranger: Stranger) -> None:
    evaluate = "evaluate {} --source dates/test.en --reference dates/test.fr"
    torch_result, fp32_result = (stranger.json(evaluate.format(model)) for model in ("run", "fp32"))
    assert (torch_result["kind"], fp32_result["kind"]) == ("torch", "bundle fp32")
    assert fp32_result["scores"] == torch_result["scores"]
    assert torch_result["scores"]["bleu"] > 80  # it has learned something: what is compared is not noise
    texts = {model: (stranger.folder / f"{model}.txt").read_text(encoding="utf-8") for model in ("run", "fp32", "int8")}
    assert texts["fp32"] == texts["run"]
    assert len(set(texts["run"].splitlines())) > len(TEXT) / 2
    assert stranger.stdout["translate int8 --lines --input dates/test.en"] == texts["int8"]


@pytest.mark.slow
def test_a_device_needs_neither_torch_nor_the_strangers_package(stranger: Stranger) -> None:
    assert "onnxruntime" in stranger.device_modules
    assert not {"torch", "conv_gru"} & set(stranger.device_modules)


def test_the_products_own_code_does_not_know_the_family() -> None:
    sources = [path for folder in ("runtime", "edgeformer", "export") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 50
    for path in sources:
        assert not re.search("conv_?gru", path.read_text(encoding="utf-8"), re.IGNORECASE), path


# Within one process.


def module_of(source: str) -> ModuleType:
    """The page's module, made from its text or a changed one."""
    module = ModuleType("conv_gru")
    sys.modules["conv_gru"] = module  # msgspec looks annotations up there
    exec(source, module.__dict__)
    return module


@pytest.fixture
def conv_gru(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page's module; the process forgets it, and what is registered, afterwards."""
    monkeypatch.setattr(families, "REGISTERED", {})
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "conv_gru", ModuleType("conv_gru"))
        yield module_of(FILES["conv_gru.py"])


def test_the_pages_recipe_is_valid(conv_gru: ModuleType) -> None:
    tree = tomllib.loads(FILES["recipe.toml"])
    with pytest.raises(ConfigError, match=r"`model.family` must be one of .*, but is `conv_gru`"):
        recipe_from_tree(tree, "recipe.toml")
    register(conv_gru.CONV_GRU)
    recipe = recipe_from_tree(tree, "recipe.toml")
    assert recipe.data.corpus in CORPORA
    config = msgspec.to_builtins(model_config(recipe.model))
    assert config == {
        "d_model": 128,
        "encoder_layers": 4,
        "kernel_size": 3,
        "dropout": 0.0,
        "max_source_length": 256,
        "max_target_length": 256,
    }


def test_the_entry_points_name_is_the_familys_own(conv_gru: ModuleType) -> None:
    entries = tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"]["edgeformer.families"]
    ((name, place),) = entries.items()
    module, _, attribute = place.partition(":")
    family = getattr(sys.modules[module], attribute)
    assert isinstance(family, Family)
    assert family.name == name


@pytest.mark.parametrize("kernel_size", [1, 5])
def test_steps_and_padding_of_a_registered_family(conv_gru: ModuleType, kernel_size: int) -> None:
    register(conv_gru.CONV_GRU)
    section = {"family": "conv_gru", "preset": "small", "d_model": 48, "kernel_size": kernel_size}
    torch.manual_seed(0)
    model = randomise(get_family("conv_gru").build(model_config(section), 50, 60), seed=0)
    assert isinstance(model, EncoderDecoder)
    random = np.random.default_rng(0)
    pairs = [
        ([*random.integers(4, 50, size).tolist(), 3], random.integers(4, 60, (5 * size) % 13).tolist())
        for size in range(20)
    ]
    parity = compare_logits(model, TorchSession(model, SpecialTokens()), pairs)
    assert parity.positions == sum(len(target) + 1 for _, target in pairs)
    assert parity.max_difference <= 2e-5  # logits are of order 1 … 10

    source, target = torch.tensor([[5, 6, 7, 8, 3], [9, 3, 0, 0, 0]]), torch.tensor([[2, 8, 9], [2, 7, 6]])
    length = torch.tensor([5, 2])
    with torch.no_grad():
        together = model(source, length, target)
        alone = model(source[1:, :2], length[1:], target[1:])
        other_padding = model(source.where(source > 0, 11), length, target)
    torch.testing.assert_close(together[1:], alone, atol=2e-5, rtol=0)
    torch.testing.assert_close(together, other_padding, atol=0, rtol=0)


def test_the_pages_test_of_the_contract_passes(conv_gru: ModuleType) -> None:
    names: dict[str, Any] = {}
    exec(FILES["test_conv_gru.py"], names)
    names["test_contract"]()


@pytest.mark.slow
def test_the_pages_notebook(
    conv_gru: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_inputs(tmp_path)
    (tmp_path / "notebook.py").write_text(FILES["notebook.py"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    names = runpy.run_path("notebook.py")
    torch.set_num_threads(threads)
    assert names["result"].finished
    assert names["report"].parity.problems == []
    logits, *texts = capsys.readouterr().out.splitlines()
    assert logits.startswith("LogitParity(positions=")
    assert texts == [translation.text for translation in names["translations"]]
    assert len(texts) == 2


def test_the_pages_run_of_weights_that_exist_already(
    conv_gru: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(conv_gru.CONV_GRU)
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("recipe.toml")
    tokenizer, _ = train_tokenizers(PAIRS, recipe.tokenizer)
    tokenizer.save("tokenizer.json")
    Path("corpus.tsv").rename("pairs.tsv")
    torch.manual_seed(1)
    model = build_model(recipe, tokenizer.get_vocab_size(), tokenizer.get_vocab_size())
    torch.save(model.state_dict(), "weights.pt")
    Path("existing_weights.py").write_text(FILES["existing_weights.py"], encoding="utf-8")
    runpy.run_path("existing_weights.py")
    run = Run.open("imported")
    assert run.sample == list(PAIRS)
    loaded = run.load_model().state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in model.state_dict().items())
