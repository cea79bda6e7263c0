"""Kills and power failures: a writer that does it right survives all, and each mistake is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeformer_runtime.temporaries import make_folder
from robustness.interruptions.ext4 import cuts, mount_problem
from robustness.interruptions.kills import Left, Moment, kills
from robustness.interruptions.power import power_failures
from robustness.interruptions.strace import strace_problem
from robustness.interruptions.writing import WRITINGS, Writing

if problem := strace_problem():
    pytest.skip(problem, allow_module_level=True)

START = "import os, sys\nfrom pathlib import Path\nsource, target = map(Path, sys.argv[1:])\n"
FOLDER = """
from edgeformer_runtime.files import staged_folder
with staged_folder(target, overwrite=True) as folder:
    for path in sorted(source.iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
"""
FILE = "from edgeformer_runtime.files import write_atomically\nwrite_atomically(target, source.read_bytes())\n"
IN_PLACE = "target.write_bytes(source.read_bytes())\n"
NO_SYNC = "other = target.with_name('other')\nother.write_bytes(source.read_bytes())\nother.replace(target)\n"


def folder(path: Path, version: str) -> None:
    make_folder(path)
    for name in "ab":
        (path / name).write_text(f"{name} {version}" * 10, encoding="ascii")


def file(path: Path, version: str) -> None:
    path.write_text(version * 10, encoding="ascii")


def writing(program: str, make: Callable[[Path, str], None], **settings: object) -> Writing:
    return Writing("a test", START + program, make, **settings)  # type: ignore[arg-type]  # passed through


def lefts(moments: list[tuple[int, Moment]]) -> Counter[Left]:
    return Counter(moment.left for _, moment in moments)


@pytest.mark.parametrize("has_old", [False, True])
def test_files_survive(tmp_path: Path, has_old: bool) -> None:
    tried = writing(FILE, file, has_old=has_old)
    for found in (kills(tried, made(tmp_path / "kills")), power_failures(tried, made(tmp_path / "power"), 0)):
        assert lefts(list(found)).keys() == {Left.OLD, Left.NEW}


@pytest.mark.parametrize("inject", [(), ("renameat2:error=EINVAL",)], ids=["exchange", "rename"])
def test_folders_survive_power_failures(tmp_path: Path, inject: tuple[str, ...]) -> None:
    counts = lefts(list(power_failures(writing(FOLDER, folder, inject=inject), tmp_path, 0)))
    assert counts.keys() == {Left.OLD, Left.NEW} | ({Left.RESTORED} if inject else set())
    assert counts[Left.OLD] > 10


@pytest.mark.parametrize(("program", "by_kill"), [(IN_PLACE, True), (NO_SYNC, False)], ids=["in-place", "no-sync"])
def test_mistakes_are_found(tmp_path: Path, program: str, by_kill: bool) -> None:
    tried = writing(program, file)
    assert (Left.LOST in lefts(list(kills(tried, made(tmp_path / "kills"))))) == by_kill
    lost = [moment.when for _, moment in power_failures(tried, made(tmp_path / "power"), 0) if moment.left is Left.LOST]
    assert lost
    assert lost[0].startswith("power failure after ")


def test_what_is_synchronized_too_late_is_found(tmp_path: Path) -> None:
    """The old folder moves into one that is not on the disk: both names may be lost."""
    program = (
        "temporary = target.with_name('.target.0123456789abcdef.tmp')\ntemporary.mkdir()\n"
        "target.replace(temporary / 'outgoing')\n(temporary / 'outgoing').replace(target)\n"
    )
    assert Left.LOST in lefts(list(power_failures(writing(program, folder), tmp_path, 0)))


@pytest.mark.parametrize(("program", "survives"), [(FILE, True), (NO_SYNC, False)], ids=["right", "no-sync"])
def test_power_cuts_of_a_file_system(tmp_path: Path, program: str, survives: bool) -> None:
    """The new name is on the disk, but what it names is not, unless it was synchronized before."""
    if problem := mount_problem():
        pytest.skip(problem)
    program += (
        "from edgeformer_runtime.temporaries import sync\nsync(target.parent)\n(target.parent / 'more').touch()\n"
    )
    counts = lefts(list(cuts(writing(program, file), tmp_path)))
    assert (Left.LOST not in counts) == survives
    assert counts[Left.OLD] > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITINGS)
def test_all_writings_survive_kills(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    assert Left.LOST not in lefts(list(kills(WRITINGS[name], tmp_path)))


def made(path: Path) -> Path:
    path.mkdir()
    return path
