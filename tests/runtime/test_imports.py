"""What is loaded, and what may be imported: the runtime runs on a device that has neither torch nor onnx."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest

import edgeformer_runtime
from edgeformer.cli import EXTRA_OF_MODULE
from tests.commands import python
from tests.test_architecture import MODULES, ROOT, TREES, imports_of

TRAINING = {"torch", "onnx", "onnxscript", "onnx_ir", "onnxsim", "babel", "lightning_fabric", "sacrebleu"}
SERVER = {"h11", "markdown_it", "starlette", "uvicorn", "prometheus_client"}
OPTIONAL = {
    "engines/kernels.py": {"edgeformer_kernels"},
    "distributed/ray_workers.py": {"ray"},
    "tokenizer/sentencepiece.py": {"sentencepiece"},
    "text/segmentation.py": {"sentencex"},
    "text/documents/fields.py": {"lxml"},
    "text/documents/markdown.py": {"markdown_it"},
    "text/documents/marked.py": {"lxml"},
    "text/documents/open_document.py": {"lxml"},
    "text/documents/packages.py": {"lxml"},
    "text/documents/ranges.py": {"lxml"},
    "text/documents/word.py": {"lxml"},
    "text/languages.py": {"py3langid"},
}
"""Libraries of extras, and the only modules that import them."""
RUN_COMMAND = """
import json, sys
from edgeformer.cli import main
try:
    main()
except SystemExit as stop:
    code = stop.code
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]), file=sys.stderr)
"""

HELP_OF_COMMANDS = """
import json, sys
from edgeformer.cli import main
for command in sys.argv[1:]:
    try:
        main([command, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, command
    print(json.dumps(sorted(name for name in sys.modules if "." not in name)), file=sys.stderr)
"""


def loaded_by(code: str) -> set[str]:
    names = python(code + "\nimport sys, json\nprint(json.dumps([n for n in sys.modules if '.' not in n]))").stdout
    return set(json.loads(names))


def loaded_by_command(*arguments: str | Path) -> tuple[set[str], str]:
    """Top-level modules after a command that must succeed, and its output."""
    done = python(RUN_COMMAND, *arguments)
    code, names = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(names), done.stdout


def test_importing_the_packages_is_light() -> None:
    names = loaded_by("import edgeformer; from edgeformer_runtime import EdgeformerError, DecodeOptions, open_bundle")
    assert not names & (TRAINING | {"onnxruntime", "edgeformer_export"})


def test_the_translator_loads_nothing_of_training() -> None:
    names = loaded_by("from edgeformer_runtime import Translator")
    assert not names & (
        TRAINING | SERVER | {"edgeformer_export", "edgeformer", "click", "rich", "onnxruntime", "asyncio"}
    )


def test_the_help_of_all_and_of_every_command_is_light() -> None:
    commands = ["--help", *(entry.name for entry in entry_points(group="edgeformer.commands"))]
    done = python(HELP_OF_COMMANDS, *commands)
    loaded = {command: set(json.loads(line)) for command, line in zip(commands, done.stderr.splitlines(), strict=True)}
    listed = done.stdout.partition("Commands:")[2].partition("Usage: ")[0].split()
    assert set(commands) - set(listed) == {"--help"}
    heavy = TRAINING | SERVER | {"onnxruntime"}
    assert not {command: names & heavy for command, names in loaded.items() if names & heavy}


def test_translating_loads_nothing_of_training(small_bundle: Path) -> None:
    names, output = loaded_by_command("translate", small_bundle, "The old dog runs.", "--threads", "1")
    assert output.strip()
    assert "onnxruntime" in names
    assert not names & (TRAINING | {"edgeformer_export"})


def test_distilling_loads_nothing_of_training(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The old dog runs.\n", encoding="utf-8")
    options = ("--out", tmp_path / "out", "--threads", "1")
    names, output = loaded_by_command("distill", small_bundle, tmp_path / "text", *options)
    assert "1 pair." in output
    assert "onnxruntime" in names
    assert not names & (TRAINING | {"edgeformer_export"})


def test_inspecting_opens_no_graph(small_bundle: Path) -> None:
    names, _ = loaded_by_command("inspect", small_bundle, "--json")
    assert not names & (TRAINING | {"edgeformer_export", "onnxruntime"})


def test_every_public_name_exists_and_no_other() -> None:
    for name in edgeformer_runtime.__all__:
        assert getattr(edgeformer_runtime, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Transformer'"):
        _ = edgeformer_runtime.Transformer


def imports_below(folder: Path) -> Iterator[tuple[Path, set[tuple[str, bool]]]]:
    """The modules of a folder with the packages that each imports, and whether it does so at once."""
    for name, path in MODULES.items():
        if path.is_relative_to(folder):
            yield path, {(each.module.partition(".")[0], each.at_once) for each in imports_of(TREES[name])}


def test_the_runtime_imports_its_four_libraries_only() -> None:
    """And more for its commands, one each for signatures, names and languages, and those of extras, in the modules that
    need them. What only type checkers import need not be installed."""
    root = ROOT / "runtime" / "edgeformer_runtime"
    allowed = {"numpy", "onnxruntime", "tokenizers", "msgspec", "edgeformer_runtime", *sys.stdlib_module_names}
    for path, imported in imports_below(root):
        later = {"typing_extensions", "cryptography", "langcodes", "platformdirs"}
        names = {name for name, at_once in imported if at_once or name not in later}
        commands = {"click", "rich"} if path.is_relative_to(root / "cli") else set()
        optional = OPTIONAL.get(path.relative_to(root).as_posix(), set())
        optional |= SERVER if path.is_relative_to(root / "serve") else set()
        assert not names - allowed - commands - optional, path


def test_a_package_that_a_command_lacks_is_named_with_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = {re.split("[<>=]", line)[0] for line in project["dependencies"]}
    distributions = packages_distributions()
    for folder in (ROOT / "edgeformer", ROOT / "export"):
        for path, imported in imports_below(folder):
            for name in {name for name, _ in imported} - sys.stdlib_module_names:
                if not name.startswith("edgeformer") and name not in required:
                    extra = project["optional-dependencies"][EXTRA_OF_MODULE[name]]
                    packages = {re.split(r"[<>=\[]", line)[0].lower() for line in extra}
                    assert packages & {package.lower().replace("_", "-") for package in distributions[name]}, path


def test_torch_is_imported_at_once_only_where_models_and_training_are() -> None:
    root = ROOT / "edgeformer"
    for path, imported in imports_below(root):
        place = path.relative_to(root)
        if place.parts[0] not in {"model", "train"} and place.as_posix() not in {
            "importers/pickled.py",
            "run/weights.py",
        }:
            assert "torch" not in {name for name, at_once in imported if at_once}, path
