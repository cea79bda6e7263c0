"""Writes a small int8 bundle with random weights, to test a runtime where torch is not installed.

Usage: ``python -m tests.make_small_bundle FOLDER``, from the root of the repository
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from edgeformer_export.export import export_run
from tests.factory import small_run


def main() -> None:
    """Export a small run to the folder given as the first argument."""
    with tempfile.TemporaryDirectory() as folder:
        export_run(small_run(Path(folder) / "run"), Path(sys.argv[1]), precision="int8")


if __name__ == "__main__":
    main()
