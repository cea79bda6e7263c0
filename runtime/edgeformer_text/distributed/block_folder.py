"""The folder of a translation in progress: one file per block that is done, so that the rest can follow later."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.files import clear_stale, locked_folder, write_atomically

JOB_FILE = "job.json"


class BlockFolder:
    """Results of blocks, each in a file that is named after the block's number; what a dead process left is cleared."""

    def __init__(self, path: Path) -> None:
        self.path = path
        clear_stale(path)

    def done(self, blocks: int) -> set[int]:
        """Return the numbers below ``blocks`` of those that are done."""
        return {number for number in range(blocks) if self._file(number).is_file()}

    def write(self, number: int, content: bytes) -> None:
        """Write the result of a block; it is either there completely or not at all.

        The time does not depend on how many are done.
        """
        write_atomically(self._file(number), content, clear=False)

    def read(self, number: int) -> bytes:
        """Return the result of a block that is done."""
        return self._file(number).read_bytes()

    def _file(self, number: int) -> Path:
        return self.path / f"{number:08}"


@contextmanager
def block_folder(output: Path, job: Mapping[str, Any]) -> Iterator[BlockFolder]:
    """Yield the folder ``OUTPUT.blocks``, that of an earlier attempt or a new one, and remove it on success.

    Args:
        output: the file that the results are for.
        job: whatever the results depend on, JSON types by name.

    Raises:
        ConfigError: the folder belongs to another job or has other content, or another process is using it.
    """
    folder = output.with_name(f"{output.name}.blocks")
    folder.mkdir(exist_ok=True)
    with locked_folder(folder):
        _check_job(folder, msgspec.json.decode(msgspec.json.encode(job)))
        yield BlockFolder(folder)
        shutil.rmtree(folder)


def _check_job(folder: Path, job: dict[str, Any]) -> None:
    """Compare the job with that of an earlier attempt, or write it down."""
    try:
        before = msgspec.json.decode((folder / JOB_FILE).read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise ConfigError(f"`{folder}` was not written by this command; move it away.") from None
        write_atomically(folder / JOB_FILE, msgspec.json.encode(job))
        return
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(f"`{folder / JOB_FILE}` is damaged; delete `{folder}` to start again.") from None
    if differing := [f"`{key}`" for key in sorted({*job, *before}) if job.get(key) != before.get(key)]:
        raise ConfigError(
            f"`{folder}` has part of another translation, which differs in {', '.join(differing)}; repeat that command "
            "to continue it, or delete the folder to start again."
        )
