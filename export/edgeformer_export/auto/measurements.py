"""Measurements kept on disk, so that work that was cut off goes on where it was."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import edgeformer_export
import edgeformer_runtime
from edgeformer_export.writer import ExportError
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION
from edgeformer_runtime.files import write_atomically

NOTES_FILE = "measurements.jsonl"

Value = TypeVar("Value")


class Notebook:
    """A folder with measurements by name, a line each; a line that was cut off does not count.

    Args:
        folder: where they are; made if it is missing.
        facts: everything that the measurements depend on, in JSON's types.
        resume: use what is there.
        overwrite: remove what is there.

    Raises:
        ExportError: the folder holds measurements and neither is allowed, those of other facts, or something else.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        self.folder = folder
        self._path = folder / NOTES_FILE
        self._facts = {**facts, "onnxruntime": ENGINE_VERSION, "code": _code()}
        self._notes: dict[str, Any] = {}
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not self._path.is_file():
                raise ExportError(f"`{folder}` holds something else than measurements; choose another --out.")
            if resume:
                self._read()
            elif overwrite:
                _empty(folder)
            else:
                raise ExportError(
                    f"`{folder}` holds measurements of an earlier run; give --resume to use them, or --overwrite to "
                    "measure again."
                )
        write_atomically(self._path, b"".join(map(_line, [self._facts, *self._notes.items()])))

    def measured(self, name: str, kind: type[Value], measure: Callable[[], Value]) -> Value:
        """What was measured under a name; it is measured now if it was not before.

        Args:
            name: of the measurement.
            kind: type of its result, which has a JSON form.
            measure: measures it.
        """
        if name not in self._notes:
            value = measure()
            self._notes[name] = msgspec.to_builtins(value)
            with self._path.open("ab") as stream:
                stream.write(_line((name, value)))
            return value
        return msgspec.convert(self._notes[name], kind)

    def _read(self) -> None:
        lines = self._path.read_bytes().splitlines(keepends=True)
        try:
            facts, *notes = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
            self._notes = dict(notes)
            different = sorted(name for name in self._facts if facts.get(name) != self._facts[name])
        except (msgspec.DecodeError, AttributeError, TypeError, ValueError):
            raise ExportError(f"`{self._path}` is damaged; give --overwrite to measure again.") from None
        if different:
            raise ExportError(
                f"`{self.folder}` holds measurements with another {', '.join(different)}; give --overwrite to measure "
                "again."
            )


def _empty(folder: Path) -> None:
    """Remove what is in a folder, but not the folder, which may be locked."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _code() -> str:
    """Digest of the programs that measure."""
    total = hashlib.sha256()
    for package in (edgeformer_export, edgeformer_runtime):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()
