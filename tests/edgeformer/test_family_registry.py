"""The registry of model families: packages that declare one, and how they can be wrong."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest

from edgeformer import families
from edgeformer.config import recipe_from_tree
from edgeformer.errors import CheckpointError, ConfigError
from edgeformer.families import Family, family_names, get_family, is_shipped, model_config, register
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.run.folder import Run
from tests.factory import small_recipe, small_run

MODULE = """
import msgspec
from edgeformer.families import Family

class Config(msgspec.Struct):
    width: int = 8

OWN = Family(name="own", config_type=Config, build=lambda *sizes: None)
NUMBER = 3
"""


def no_model(config: msgspec.Struct, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    raise AssertionError("nothing is built here")


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards."""
    monkeypatch.setattr(families, "REGISTERED", {})


def declare(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, value: str, name: str = "own") -> Path:
    """Install a package of one module that declares one family."""
    path = folder / "own_package.py"
    path.write_text(module, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "own_package", raising=False)
    entry = EntryPoint(name=name, value=value, group="edgeformer.families")
    monkeypatch.setattr(families, "installed_families", lambda: {name: entry})
    return path


def test_a_declared_family_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, monkeypatch, MODULE, "own_package:OWN")
    assert family_names() == ["own"]
    assert msgspec.to_builtins(model_config({"family": "own", "width": 5})) == {"width": 5}
    # Its configuration does not forbid unknown fields; the registry does.
    with pytest.raises(ConfigError, match=r"Section \[model\] of family `own` has no field `widht`\."):
        model_config({"family": "own", "widht": 5})


@pytest.mark.parametrize(
    ("module", "value", "problem"),
    [
        (MODULE, "own_packag:OWN", r"cannot be loaded: ModuleNotFoundError: No module named 'own_packag'\."),
        (MODULE, "own_package:OWM", r"cannot be loaded: AttributeError: module 'own_package' has no attribute 'OWM'\."),
        ("\nimport missing_library", "own_package:OWN", r"No module named 'missing_library' \({path}:2\)\."),
        ("\n\n1 / 0", "own_package:OWN", r"cannot be loaded: ZeroDivisionError: division by zero \({path}:3\)\."),
        ("x = (", "own_package:OWN", r"cannot be loaded: SyntaxError: '\(' was never closed \({path}:1\)\."),
        (MODULE, "own_package:NUMBER", r"must be a Family, but is int\."),
        (
            MODULE.replace('"own"', '"other"'),
            "own_package:OWN",
            r"declares the family `other`; the two names must be equal\.",
        ),
    ],
    ids=["module", "attribute", "import", "raises", "syntax", "type", "name"],
)
def test_a_broken_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, value: str, problem: str
) -> None:
    path = declare(tmp_path, monkeypatch, module, value)
    pattern = rf"^Entry point `own = {value}` of edgeformer\.families .*{problem.replace('{path}', str(path))}$"
    with pytest.raises(ConfigError, match=pattern):
        get_family("own")
    assert family_names() == ["own"]


def test_without_torch_the_command_line_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, monkeypatch, "raise ModuleNotFoundError(name='torch')", "own_package:OWN")
    with pytest.raises(ModuleNotFoundError):
        get_family("own")


def test_a_name_is_registered_once() -> None:
    family = Family(name="own", config_type=msgspec.Struct, build=no_model)
    register(family)
    register(family)
    assert get_family("own") is family
    for name in ("own", "transformer"):
        with pytest.raises(ConfigError, match=f"A family named `{name}` is already registered"):
            register(Family(name=name, config_type=msgspec.Struct, build=no_model))


def test_the_configuration_of_a_family_is_a_struct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = MODULE.replace("class Config(msgspec.Struct)", "@dataclasses.dataclass\nclass Config")
    path = declare(tmp_path, monkeypatch, f"import dataclasses\n{module}", "own_package:OWN")
    with pytest.raises(ConfigError) as caught:
        get_family("own")
    assert str(caught.value) == (
        "Entry point `own = own_package:OWN` of edgeformer.families cannot be loaded: ConfigError: `config_type` of "
        "family `own` must be a msgspec.Struct, which checks the fields of a recipe; write `class "
        f"Config(msgspec.Struct)` and remove `@dataclass` ({path}:10)."
    )
    with pytest.raises(ConfigError, match=r"must be a msgspec\.Struct, .*; write `class dict\(msgspec\.Struct\)`\.$"):
        Family(name="own", config_type=dict, build=no_model)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ConfigError, match=r"must be a class, but is 8\."):
        Family(name="own", config_type=8, build=no_model)  # type: ignore[arg-type]  # the mistake under test


def test_shipped_families_are_told_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_shipped("transformer")
    assert is_shipped("lstm")
    register(Family(name="own", config_type=msgspec.Struct, build=no_model))
    assert not is_shipped("own")
    declare(tmp_path, monkeypatch, MODULE, "own_package:OWN", name="other")
    assert not is_shipped("other")


def test_a_run_of_a_family_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run(tmp_path / "run")
    assert Run.open(run.path).recipe == run.recipe
    declare(tmp_path, monkeypatch, MODULE, "own_package:OWN")
    with pytest.raises(CheckpointError) as caught:
        Run.open(run.path)
    assert str(caught.value) == (
        f"Run `{run.path}` needs the model family `transformer`, which is not installed; "
        "install the package that declares it in `edgeformer.families`."
    )
    declare(tmp_path, monkeypatch, MODULE, "own_package:NONE", name="transformer")
    with pytest.raises(CheckpointError, match=r"family `transformer`\. Entry point .*no attribute 'NONE'\.$"):
        Run.open(run.path)


def test_noam_needs_the_width_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, monkeypatch, MODULE, "own_package:OWN")
    tree = {"model": {"family": "own"}, "data": {"train": ["unused"]}, "train": {"schedule": "noam"}}
    with pytest.raises(ConfigError, match=r'`train.schedule` = "noam" needs .* `d_model`, but family `own` has none\.'):
        recipe_from_tree(tree, "test")
    declare(tmp_path, monkeypatch, MODULE.replace("width", "d_model"), "own_package:OWN")
    assert recipe_from_tree(tree, "test").train.schedule == "noam"


def test_a_family_that_cannot_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = msgspec.structs.replace(small_recipe(), model={"family": "own"})
    path = declare(tmp_path, monkeypatch, MODULE.replace("None)", "[].pop())"), "own_package:OWN")
    with pytest.raises(ConfigError, match=rf"`own` cannot build .*: IndexError: pop from empty list \({path}:8\)\."):
        build_model(recipe, 9, 9)
    declare(tmp_path, monkeypatch, MODULE, "own_package:OWN")
    with pytest.raises(ConfigError, match="`own` must build an EncoderDecoder, but builds a NoneType"):
        build_model(recipe, 9, 9)
