"""What is written atomically: bundles and checkpoints, each as a program that replaces an old one by a new one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.temporaries import clear_stale
from robustness.interruptions.strace import traced
from tests.bundles import edit_manifest
from tests.store import COMMITTED

Content = dict[str, bytes]
"""Content of every file below a path, by its path relative to that; a file itself has an empty one."""

BUNDLE = """
import shutil, sys
from pathlib import Path
from edgeformer_export.writer import atomic_folder
with atomic_folder(Path(sys.argv[2]), overwrite=True) as folder:
    for path in sorted(Path(sys.argv[1]).iterdir()):
        shutil.copy(path, folder)
"""
"""Writes the bundle of the first folder to the second, as ``edgeformer export --overwrite`` does."""
CHECKPOINT = """
import sys
from pathlib import Path
import torch
from edgeformer.train.checkpoints.checkpoint import TrainingProgress, TrainingState
model = torch.nn.Linear(30, 30, bias=False)
torch.nn.init.constant_(model.weight, float(Path(sys.argv[1]).read_text()))
state = TrainingState(model, torch.optim.AdamW(model.parameters()), TrainingProgress(step=1))
state.save(Path(sys.argv[2]))
"""
"""Writes a checkpoint, as training does; the first file has the number that it is made of."""
NO_EXCHANGE = "renameat2:error=EINVAL"
"""What strace makes of an exchange of names on file systems that have none."""


@dataclass(frozen=True)
class Writing:
    """A program that replaces something."""

    what: str
    """What is written, for readers."""
    program: str
    make: Callable[[Path, str], None]
    """Creates what the program reads, or what it replaces, from ``old`` or ``new``."""
    has_old: bool = True
    """Whether there is something to replace."""
    inject: tuple[str, ...] = ()

    def prepare(self, folder: Path) -> tuple[Path, Path]:
        """Create what is read, and what is replaced; returns both paths."""
        source, target = folder / "in", folder / "out" / "target"
        target.parent.mkdir()
        self.make(source, "new")
        if self.has_old:
            self.make_old(folder, target)
        return source, target

    def make_old(self, folder: Path, target: Path) -> None:
        """Create what is replaced: a checkpoint by the program itself."""
        if self.program == CHECKPOINT:
            self.make(folder / "before", "old")
            assert traced(self.program, folder / "before", target).status == 0
        else:
            self.make(target, "old")


def _bundle(path: Path, version: str) -> None:
    shutil.copytree(COMMITTED / "int8", path)
    edit_manifest(path, lambda tree: tree.update(source_language=version))


def _number(path: Path, version: str) -> None:
    path.write_text(json.dumps({"old": 1.0, "new": 2.0}[version]), encoding="ascii")


WRITINGS = {
    "bundle": Writing("a bundle", BUNDLE, _bundle, has_old=False),
    "bundle-overwrite": Writing("a bundle over another", BUNDLE, _bundle),
    "bundle-rename": Writing("the same, where names cannot be exchanged", BUNDLE, _bundle, inject=(NO_EXCHANGE,)),
    "checkpoint": Writing("a checkpoint", CHECKPOINT, _number, has_old=False),
    "checkpoint-overwrite": Writing("a checkpoint over another", CHECKPOINT, _number),
}


def writing_problem(writing: Writing) -> str | None:
    """Why a program cannot run here; ``None`` if it can."""
    needed = "torch" if writing.program == CHECKPOINT else "edgeformer_export"
    return None if find_spec(needed) else f"{needed} is not installed"


def content_of(path: Path) -> Content | None:
    """Content of a file or folder; ``None`` if there is neither."""
    if path.is_file():
        return {"": path.read_bytes()}
    if not path.is_dir():
        return None
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def recovered(target: Path) -> Content | None:
    """What has the name after the recovery that every later use of the name begins with."""
    clear_stale(target.parent, target.name)
    if (target / "manifest.json").exists():
        open_bundle(target)  # which checks the hash of every file
    return content_of(target)
