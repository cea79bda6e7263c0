"""Measurements kept on disk, so that interrupted work can be resumed."""

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
from edgeformer_runtime.files import naming, write_atomically

MEASUREMENTS_FILE = "measurements.jsonl"

Value = TypeVar("Value")


class Measurements:
    """Named measurements in a folder, one per line of a file; an incomplete last line is ignored.

    Args:
        folder: the folder; created if it is missing.
        facts: everything that the measurements depend on, as JSON types.
        resume: use existing measurements.
        overwrite: remove existing measurements.

    Raises:
        ExportError: the folder contains measurements but neither ``resume`` nor ``overwrite`` is set, or measurements
            that depend on other facts, or unrelated files.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        self.folder = folder
        self._path = folder / MEASUREMENTS_FILE
        facts = {**facts, "onnxruntime": ENGINE_VERSION, "code": _code()}
        self._facts = msgspec.json.decode(msgspec.json.encode(facts))  # as they are read again: tuples become lists
        self._values: dict[str, Any] = {}
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if not self._path.is_file():
                raise ExportError(f"`{folder}` contains something other than measurements; choose another --out.")
            if resume:
                self._read()
            elif overwrite:
                _empty(folder)
            else:
                raise ExportError(
                    f"`{folder}` contains measurements of an earlier run; give --resume to use them, or --overwrite to "
                    "measure again."
                )
        write_atomically(self._path, b"".join(map(_line, [self._facts, *self._values.items()])))

    def measured(self, name: str, kind: type[Value], measure: Callable[[], Value]) -> Value:
        """Return the result of a measurement, measuring only if it is not known yet.

        Args:
            name: name of the measurement.
            kind: type of the result, which must be convertible to JSON.
            measure: function that performs the measurement.
        """
        if name not in self._values:
            value = measure()
            self._values[name] = msgspec.to_builtins(value)
            with naming(self._path), self._path.open("ab") as stream:
                stream.write(_line((name, value)))
            return value
        return msgspec.convert(self._values[name], kind)

    def _read(self) -> None:
        lines = self._path.read_bytes().splitlines(keepends=True)
        try:
            facts, *values = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
            self._values = dict(values)
            different = sorted(name for name in self._facts if facts.get(name) != self._facts[name])
        except (msgspec.DecodeError, AttributeError, TypeError, ValueError):
            raise ExportError(f"`{self._path}` is damaged; give --overwrite to measure again.") from None
        if different:
            raise ExportError(
                f"`{self.folder}` contains measurements with another {', '.join(different)}; give --overwrite to "
                "measure again."
            )


def _empty(folder: Path) -> None:
    """Remove the contents of a folder but not the folder itself, which may be locked."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _code() -> str:
    """Compute a digest of the measuring code."""
    total = hashlib.sha256()
    for package in (edgeformer_export, edgeformer_runtime):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()
