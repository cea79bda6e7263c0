"""Puts the compiled library into the wheel, which is for one system and any version of Python."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))


class KernelsHook(BuildHookInterface[Any]):
    """Compiles for ``$EDGEFORMER_KERNELS_TARGET``, by default for this machine."""

    def dependencies(self) -> list[str]:
        """Zig, unless another compiler makes kernels that are as fast; see :class:`BuildHookInterface`."""
        from compile import TARGETS, this_system

        target = self._target()
        own = target is None and (os.environ.get("CXX") or shutil.which("clang++") or this_system() not in TARGETS)
        return [] if own else ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See :class:`BuildHookInterface`."""
        from compile import TARGETS, build, this_system

        target = self._target()
        name = target or this_system()
        folder = Path(self.root) / ("edgeformer_kernels" if version == "editable" else f"build/{name}")
        library = build(target, folder)
        build_data["tag"] = f"py3-none-{TARGETS[name][2]}"
        build_data["force_include"][str(library)] = f"edgeformer_kernels/{library.name}"

    def _target(self) -> str | None:
        return os.environ.get("EDGEFORMER_KERNELS_TARGET") or None
