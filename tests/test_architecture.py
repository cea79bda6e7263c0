"""The shape of the code: who imports whom, how full a folder is, how long a function may be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "edgeformer_runtime": ROOT / "runtime" / "edgeformer_runtime",
    "edgeformer_text": ROOT / "runtime" / "edgeformer_text",
    "edgeformer_server": ROOT / "runtime" / "edgeformer_server",
    "edgeformer": ROOT / "edgeformer",
    "edgeformer_export": ROOT / "export" / "edgeformer_export",
    "edgeformer_bench": ROOT / "benchmarks" / "edgeformer_bench",
}
"""Import packages and their folders; each may import those above it."""
MAX_MODULES = 14
"""Modules of a folder, ``__init__.py`` not counted."""
MAX_LINES = 60
"""Lines of a function, from ``def`` to its last statement, docstring included."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    module: str
    """Full name of the imported module."""
    at_once: bool
    """Whether importing the file imports it: not below ``TYPE_CHECKING``, and not inside a function."""


def sources(package: str) -> dict[str, Path]:
    """Files of a package by module name."""
    folder = PACKAGES[package]
    return {module_name(package, path.relative_to(folder)): path for path in sorted(folder.rglob("*.py"))}


def module_name(package: str, path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join((package, *takewhile(lambda part: part != "__init__", parts)))


MODULES = {name: path for package in PACKAGES for name, path in sources(package).items()}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports_of(tree: ast.AST, at_once: bool = True) -> Iterator[Import]:
    """All imports of a module among those of the packages."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield Import(submodule if submodule in MODULES else str(node.module), at_once)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports_of(ast.Module(node.body, []), at_once=False)
            yield from imports_of(ast.Module(node.orelse, []), at_once)
        else:
            yield from imports_of(node, at_once and not isinstance(node, Function))


def test_modules_import_each_other_in_no_circle() -> None:
    graph: Mapping[str, set[str]] = {
        name: {imported.module for imported in imports_of(tree) if imported.at_once and imported.module in MODULES}
        - {name}
        for name, tree in TREES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("these import each other: " + " -> ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_those_above_them_only(package: str) -> None:
    names = list(PACKAGES)
    below = set(names[names.index(package) + 1 :])
    wrong = [
        f"{name} imports {imported.module}"
        for name in sources(package)
        for imported in imports_of(TREES[name])
        if imported.module.partition(".")[0] in below
    ]
    assert not wrong


def test_no_folder_is_crowded() -> None:
    modules = Counter(str(path.parent.relative_to(ROOT)) for path in MODULES.values() if path.name != "__init__.py")
    assert not {folder: count for folder, count in modules.items() if count > MAX_MODULES}


def test_no_function_is_long() -> None:
    functions = {
        f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
    }
    assert not {name: lines for name, lines in functions.items() if lines > MAX_LINES}


MAY_NAME_THE_START_TOKEN = (
    "edgeformer_runtime.bundle.",
    "edgeformer_runtime.tokenizers.",
    "edgeformer_runtime.encoding",
    "edgeformer.importers.",
    "edgeformer_export.shortlist.lists",
    "edgeformer_bench.",
)
"""What defines formats or lists special tokens; all others take :attr:`SpecialTokens.start`, which is more than one
token in multilingual models."""


def test_targets_begin_with_what_special_tokens_say() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name, tree in TREES.items()
        if not name.startswith(MAY_NAME_THE_START_TOKEN)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"bos", "bos_id"}
    ]
    assert not wrong
