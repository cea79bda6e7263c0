"""Plants bugs in the runtime and counts those that no test notices: ``python -m robustness.mutants``.

A bug is a small change of one expression or statement: another comparison, another constant, a call that is left out.
Each is tried in a process of its own, with those tests that call the function it is in. Tests that start processes of
their own do not see it and are left out.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "runtime" / "edgeformer_runtime"
TESTS = {
    "decoding": [
        *("alternatives", "any_session", "batching", "best_tokens", "decode", "forced_steps", "limits", "options"),
        *("prefixes", "processors", "sampling", "scores", "search", "stopping", "token_stream", "translator"),
    ],
    "serve": [
        *("serve/access", "serve/batching", "serve/connections", "serve/documents", "serve/effects"),
        *("serve/libretranslate", "serve/rates", "serve/service", "serve/settings", "serve/shell", "serve/statuses"),
        *("serve/stored_files", "serve/v1"),
    ],
    "text": ["text/*"],
    "workspace": ["models", "workspace", "serve/libretranslate"],
}
"""Names of the tests of a room, below ``tests/runtime``, without ``test_``."""
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SECONDS = 30.0
"""Time of a test, beyond ten times the usual one, after which a bug counts as found: it hangs."""
PYTEST = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]

Calls = dict[str, tuple[float, list[str]]]
"""Seconds of each test, and the functions that it calls."""


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Wrong versions of a node of the syntax tree."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
            yield ast.Compare(node.left, [SWAPPED[type(operator)]()], node.comparators)  # type: ignore[list-item]  # a comparison
        case ast.BinOp(op=operator) if type(operator) in SWAPPED and not isinstance(
            node.left, ast.Constant | ast.JoinedStr
        ):
            yield ast.BinOp(node.left, SWAPPED[type(operator)](), node.right)  # type: ignore[arg-type]  # an operator
        case ast.BoolOp(op=operator):
            yield ast.BoolOp(SWAPPED[type(operator)](), node.values)  # type: ignore[arg-type]  # and, or
            yield ast.BoolOp(operator, node.values[:-1]) if len(node.values) > 2 else node.values[0]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            yield type(node)(**{**dict(ast.iter_fields(node)), "test": ast.UnaryOp(ast.Not(), node.test)})
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name], ast.Load())
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)) if lower is not None or upper is not None:
            yield ast.Subscript(node.value, ast.Slice(None, None), node.ctx)


def sites(path: Path) -> Iterator[tuple[int, int, int, str]]:
    """The bugs that can be planted in a file: number of the node, of its variant, line of its function, description."""
    text = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    skipped: set[ast.AST] = set()
    functions: dict[ast.AST, int] = {}
    for node in ast.walk(tree):
        line = functions.get(node, 0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        parts = list(ast.iter_child_nodes(node))
        for part in parts:
            functions[part] = line
        hidden = [getattr(node, name, None) for name in ("annotation", "returns", "msg")]
        # `zip(strict=True)` asserts that lengths are the same: without it, nothing changes but where there is a bug.
        is_assertion = isinstance(node, ast.keyword) and ast.unparse(node) == "strict=True"
        if node in skipped or is_assertion or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            skipped.update(parts)
        skipped.update(part for part in hidden if isinstance(part, ast.AST))
    for number, node in enumerate(ast.walk(tree)):
        if node in skipped or not functions.get(node):
            continue
        for which, variant in enumerate(variants(node)):
            place = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            yield number, which, functions[node], f"{place}\n{written(lines, node, variant)}"


def written(lines: Sequence[str], node: Any, variant: ast.AST) -> str:
    """The lines of a node, without and with a bug."""
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()  # offsets count bytes
    before, after = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    changed = ast.unparse(ast.fix_missing_locations(ast.copy_location(copy.deepcopy(variant), node)))
    own, other = "\n".join(lines[node.lineno - 1 : node.end_lineno]), f"{before}{changed}{after}"
    if isinstance(node, ast.If | ast.While):  # whose bug is in the first line
        own, other = own.partition("\n")[0], before + changed.partition("\n")[0]
    return "\n".join(f"    {sign} {' '.join(text.split())}" for sign, text in (("-", own), ("+", other)))


def planted(path: Path, number: int, which: int) -> Any:
    """The code of a file with a bug."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = list(ast.walk(tree))[number]

    class Plant(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if node is not wanted:
                return self.generic_visit(node)
            return ast.copy_location(copy.deepcopy(list(variants(node))[which]), node)

    return compile(ast.fix_missing_locations(Plant().visit(tree)), str(path), "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds a module with other code."""

    def __init__(self, path: Path, code: Any) -> None:
        self.name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        self.path, self.code = path, code

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        loader = importlib.machinery.SourceFileLoader(name, str(self.path))
        loader.get_code = lambda fullname: self.code  # type: ignore[method-assign]  # instead of reading it
        return importlib.machinery.ModuleSpec(name, loader, origin=str(self.path))


class Recorder:
    """Notes which functions of the package each test calls; those of shared fixtures count for all tests of a file."""

    def __init__(self) -> None:
        self.calls: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.current = ""

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self.calls[self.current].add(f"{frame.f_code.co_filename}:{frame.f_code.co_firstlineno}")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        before = self.current
        if fixturedef.scope != "function":
            self.current = "" if fixturedef.scope == "session" else before.partition("::")[0]
        yield
        self.current = before

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        self.current = item.nodeid
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        yield
        sys.setprofile(None)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration if report.outcome == "passed" else 1e6

    def result(self) -> Calls:
        return {
            test: (seconds, sorted(self.calls[test] | self.calls[test.partition("::")[0]] | self.calls[""]))
            for test, seconds in self.seconds.items()
            if seconds < 1e6
        }


def forked(work: Callable[[], int], seconds: float) -> int | None:
    """Do work in a process of its own, quietly, and return its exit status; ``None`` if it did not end in time."""
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        status = 70
        try:
            status = work()
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def recorded(room: str, folder: Path) -> Calls:
    """What the tests of a room call; read from ``folder`` if it was recorded there for the same code and tests."""
    files = sorted(file for root in (PACKAGE, ROOT / "tests") for file in root.rglob("*.py"))
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    path = folder / f"{room}-{version}.json"

    def work() -> int:
        recorder = Recorder()
        paths = [Path("tests/runtime", name) for name in TESTS[room]]
        tests = sorted(str(file) for path in paths for file in path.parent.glob(f"test_{path.name}.py"))
        pytest.main([*(option for option in PYTEST if option != "-x"), "--timeout=0", *tests], [recorder])
        path.write_text(json.dumps(recorder.result()), encoding="utf-8")
        return 0

    if not path.exists():
        forked(work, 3600)
    calls: Calls = json.loads(path.read_text(encoding="utf-8"))
    return calls


def is_found(path: Path, number: int, which: int, covering: Sequence[tuple[float, str]]) -> bool:
    """Whether a test notices a bug, or hangs. The tests, with their usual times, are run in that order."""
    limits = [SECONDS + 10 * seconds for seconds, _ in covering]

    def work() -> int:
        sys.meta_path.insert(0, Finder(path, planted(path, number, which)))
        return int(pytest.main([*PYTEST, f"--timeout={max(limits)}", *(test for _, test in covering)]))

    return forked(work, SECONDS + sum(limits)) != 0


@click.command()
@click.option("--sample", type=click.IntRange(1), default=200, show_default=True, help="Bugs to plant.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--room", "rooms", type=click.Choice(sorted(TESTS)), multiple=True, help="May be repeated. Default: all.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True)
@click.option("--minutes", type=float, default=1e6, help="Begin with no more bugs after this time.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "build" / "mutants", show_default=True)
def main(sample: int, seed: int, rooms: tuple[str, ...], processes: int, minutes: float, out: Path) -> None:
    """Plant bugs, and list those that no test notices."""
    import_module("onnxruntime")  # once, rather than in each process
    hypothesis = import_module("hypothesis")  # examples that show a bug are neither made simpler nor tried for others
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("planted", database=None, phases=phases)
    hypothesis.settings.load_profile("planted")
    os.chdir(ROOT)
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    calls = {room: recorded(room, out) for room in rooms or sorted(TESTS)}
    bugs = [
        (room, path, *site) for room in calls for path in sorted((PACKAGE / room).rglob("*.py")) for site in sites(path)
    ]
    chosen = random.Random(seed).sample(bugs, min(sample, len(bugs)))
    survivors, tried = Counter[str](), Counter[str]()

    def attempt(bug: tuple[str, Path, int, int, int, str]) -> None:
        room, path, number, which, line, description = bug
        if (time.monotonic() - began) / 60 > minutes:
            return
        covering = sorted(
            (seconds, test) for test, (seconds, functions) in calls[room].items() if f"{path}:{line}" in functions
        )
        tried[room] += 1
        if not covering or not is_found(path, number, which, covering):
            survivors[room] += 1
            click.echo(f"{'not noticed' if covering else 'not tested'}: {description}")

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(attempt, chosen))
    for room, count in sorted(tried.items()):
        click.echo(f"{room}: {survivors[room]} of {count} survived")
    total, left = tried.total(), survivors.total()
    click.echo(f"{left} of {total} survived, {left / max(1, total):.0%}; there are {len(bugs):,}")


if __name__ == "__main__":
    main()
