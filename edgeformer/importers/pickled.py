"""Files of ``torch.save``, of which nothing but tensors is read.

``torch.load(weights_only=True)`` runs no code of a file, but a file can have it allocate any amount of memory. So a
process with limits of memory and time reads files first; what it can read takes no more in this one.
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_ARRAYS, refuse_pointer
from edgeformer.traceback_summary import describe
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.process_limits import limit_process

MAX_SHARING = 4
"""Size of all tensors, in multiples of the size of the file: tied tables are there under several names."""
MEMORY, MEMORY_PER_BYTE = 256 << 20, 3
"""Bytes of memory that reading may take, beside those for each byte of the largest file."""
_REASON = re.compile(r"Unsupported global: GLOBAL \S+|unsupported GLOBAL \S+|Unsupported \w+ \d+")
"""What torch cannot read, in the midst of its advice."""
SECONDS, BYTES_PER_SECOND = 10, 32 << 20
"""Processor time that reading may take, beside that for the bytes of all files."""


def read_pickled(files: Sequence[Path]) -> list[dict[str, torch.Tensor]]:
    """Read the tensors of files; those of archives are mapped into memory."""
    for file in files:
        refuse_pointer(file)
    process = subprocess.run(
        [sys.executable, "-P", "-m", __name__, *map(os.path.abspath, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        check=False,
    )
    if process.returncode:
        why = process.stdout or "it takes too much memory or time, or is damaged"
        raise ImporterError(
            f"`{files[0]}`{' or its parts' if files[1:] else ''} cannot be read as weights only: {why}. Save the model "
            "as model.safetensors."
        )
    return [load_weights(file) for file in files]


def load_weights(file: Path) -> dict[str, torch.Tensor]:
    """Read a file without limits.

    Raises:
        Exception: of any type, if the file is damaged, or has something other than weights.
    """
    is_archive = zipfile.is_zipfile(file)  # since torch 1.6
    if is_archive:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
        if len(entries) > MAX_ARRAYS or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("its members are compressed, or more than a model has weights")
    tree = torch.load(str(file), map_location="cpu", weights_only=True, mmap=is_archive)
    if not isinstance(tree, dict):
        raise ValueError("it has no mapping from names to weights")
    for name, tensor in tree.items():
        if not isinstance(name, str):
            raise ValueError("it has a mapping whose keys are not names")
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise ValueError(f"it has something other than weights under {name[:80]!r}")
    if sum(tensor.nbytes for tensor in tree.values()) > MAX_SHARING * file.stat().st_size:
        raise ValueError("its weights share memory")
    return {name: tensor.detach() for name, tensor in tree.items()}


def reason(error: Exception) -> str:
    """Say why a file cannot be read, as the end of a sentence, without the library's advice to trust the file."""
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    said = describe(error) if type(error) is not ValueError else str(error)
    if found := _REASON.search(str(error)):
        said = found[0]
    return shortened(said, 300).removesuffix(".")


def main(files: Sequence[str]) -> None:
    """Read files in little memory and time; say on standard output what is wrong with one."""
    sizes = [Path(file).stat().st_size for file in files]
    used = Path("/proc/self/statm")  # the libraries
    pages = int(used.read_text().split()[0]) if used.exists() else 1 << 21
    limit_process(
        pages * mmap.PAGESIZE + MEMORY + MEMORY_PER_BYTE * max(sizes),
        int(time.process_time()) + SECONDS + sum(sizes) // BYTES_PER_SECOND,
    )
    for file in files:
        try:
            load_weights(Path(file))
        except Exception as error:
            sys.stdout.write(reason(error))
            sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
