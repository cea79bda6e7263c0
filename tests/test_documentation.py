"""The README and the pages under ``docs/``: links lead somewhere, and commands have the options that are written."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from edgeformer.cli import main
from edgeformer_runtime import contract
from edgeformer_runtime.bundle import generation, manifest, plan, text_format
from edgeformer_runtime.bundle.operators import ORT_OPERATORS
from edgeformer_runtime.check import golden
from edgeformer_runtime.cli import options
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.tokenizers.tokenizer_file import PATTERNS
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for room in ("runtime", "edgeformer", "export", "benchmarks") for path in (ROOT / room).rglob("*.py")]
FOR_DEVELOPERS = [ROOT / "docs" / "architecture.md", ROOT / "docs" / "extending.md", ROOT / "CONTRIBUTING.md"]
ROOMS = [
    ROOT,
    *(ROOT / room for room in ("runtime/edgeformer_runtime", "runtime/edgeformer_text", "runtime/edgeformer_server")),
    *(ROOT / room for room in ("edgeformer/importers", "export/edgeformer_export", "benchmarks/edgeformer_bench")),
]
"""Folders that paths on these pages are relative to."""
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IN_CODE = re.compile(r"`([\w./-]+\.(?:py|toml|md))`((?:,?\s(?!`[\w./-]+\.(?:py|toml|md)`)`[A-Za-z_.]+`)*)")
"""A file, and names in it."""
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every command of ours in a page's shell blocks, without comments and shell variables."""
    for block in _SHELL.findall(page.read_text(encoding="utf-8")):
        pending = ""
        for line in block.replace("\\\n", " ").splitlines():
            pending += f"{line}\n"
            try:
                words = [word for word in shlex.split(pending, comments=True) if not word.startswith("$")]
            except ValueError:  # a quoted string continues on the next line
                continue
            pending = ""
            if "--no-python" in words:  # of torchrun
                words = words[words.index("--no-python") + 1 :]
            if words[:1] == ["edgeformer"]:
                yield words[1:]
        assert not pending, f"{page.name}: an open quotation in {pending!r}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_are_written(page: Path) -> None:
    for words in commands(page):
        if words[:1] in ([], ["COMMAND"]):
            continue
        with click.Context(main, info_name="edgeformer", **main.context_settings) as context:
            name, command, rest = main.resolve_command(context, words)
            assert command is not None
            while isinstance(command, click.Group):
                name, command, rest = command.resolve_command(context, rest)
                assert command is not None
            try:
                command.make_context(name, rest, parent=context)
            except click.ClickException as error:
                raise AssertionError(f"{shlex.join(words)}: {error.format_message()}") from None


def test_commands_are_found() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) > 40


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 140


def test_the_example_of_the_home_page_prints_what_is_below_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (code,), (output,) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    monkeypatch.chdir(ROOT)
    exec(code, {})
    assert capsys.readouterr().out == output


def test_rows_of_the_page_on_speed_say_whether_weights_were_trained() -> None:
    lines = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("| weights |", "|---"))]
    assert len(rows) > 100
    assert not [row for row in rows if not row.startswith(("| trained |", "| trained, grown |", "| random |"))]


def test_the_page_on_translating_lists_every_option() -> None:
    page = (ROOT / "docs" / "translating.md").read_text(encoding="utf-8")
    table = "".join(line for line in page.splitlines() if line.startswith("|"))
    fields = {field.name for field in dataclasses.fields(DecodeOptions)}
    assert not {name for name in fields if f"`{name}`" not in table}
    command = click.command(options.search(lambda search: None))
    flags = {name for option in command.params for name in option.opts}
    assert not {name for name in flags if f"`{name}`" not in table}


def test_the_page_on_the_format_names_all_that_a_bundle_may_have() -> None:
    page = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`]+)`", _BLOCK.sub("", page)))
    records = [manifest, generation, plan, text_format, golden]
    structs: set[type[msgspec.Struct]] = {
        value
        for module in records
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    } - {manifest._Revision, golden.GoldenResult}
    structs.add(StateTensor)
    fields = {field for struct in structs for field in struct.__struct_fields__}
    constants = {value for value in vars(contract).values() if isinstance(value, str)} - {str(contract.__doc__)}
    tensors_and_files = {value for name, value in vars(contract).items() if name.isupper() and value in constants}
    letters = {axis for axis in tensors_and_files if len(axis) == 1}
    operators = {name.rpartition(".")[2] for name in ORT_OPERATORS}
    assert len(fields) > 90
    assert not (fields | operators | (tensors_and_files - letters)) - named
    assert {*PATTERNS} <= {*page.splitlines()}


class TestHintsToInstall:
    """Messages are read where edgeformer is installed, pages also where it is not."""

    def test_extras_exist(self) -> None:
        extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
        text = "".join(path.read_text("utf-8") for path in [*SOURCES, *PAGES, ROOT / ".ci" / "run"])
        named = re.findall(r"""(?:edgeformer|\.|\.whl)\[([a-z,]+)\]['"]""", text)
        named += re.findall(r"missing_package\([^()]*(?:\([^()]*\))?[^()]*, \"([a-z,]+)\"\)", text)
        assert len(named) > 20
        assert {extra for extras in named for extra in extras.split(",")} <= extras

    def test_pip_needs_no_index_for_edgeformer_itself(self) -> None:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", "edgeformer[cpu]"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT.parent, check=True)
        assert "Requirement already satisfied: edgeformer[cpu]" in done.stdout

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_pages_install_from_a_clone_or_a_wheel(self, page: Path) -> None:
        blocks = "".join(_SHELL.findall(page.read_text("utf-8")))
        assert not re.findall(r"pip install [^\n]*['\" ]edgeformer(?!-)", blocks)


class TestNamesInTheCode:
    """Pages for developers name files and what is in them; both exist."""

    @pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=lambda page: page.name)
    def test_names_exist(self, page: Path) -> None:
        text = page.read_text("utf-8")
        missing, checked = [], 0
        for path, names in _IN_CODE.findall(text):
            files = [room / path for room in ROOMS if (room / path).is_file()]
            code = "".join(file.read_text("utf-8") for file in files)
            named = [name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", names)]
            missing += [path] * (not files)
            missing += [f"{path}: {name}" for name in named if not re.search(rf"\b{name}\b", code)]
            checked += 1 + len(named)
        assert not missing
        assert checked > 5
