"""Heat maps written by ``translate --attention``."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Self

import click

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.cli.output import console
from edgeformer_runtime.cli.translating.attention_map import draw_attention
from edgeformer_runtime.errors import ConfigError


class Pictures:
    """Heat maps of translations: a single one gets the given name, several get the number of their line as well.

    A context manager: its end writes the remaining pictures, even if the translation of a later line failed. A picture
    that cannot be written does not stop the translations; the error is raised at the end.
    """

    def __init__(self, path: Path, *taken: Path | None) -> None:
        """Check the names before the work.

        Args:
            path: name of the file; with a line number N, ``name-N.png``.
            taken: other files of the same command, which must not be replaced.

        Raises:
            ConfigError: the file cannot be written there.
            click.UsageError: a picture might replace another file of the same command.
        """
        if not path.parent.is_dir():
            raise ConfigError(f"Folder `{path.parent}` does not exist; create it, or write `{path.name}` elsewhere.")
        if path.is_dir():
            raise ConfigError(f"`{path}` is a folder; give the name of a picture to write.")
        for file in taken:
            if file is not None and file.parent.resolve() == path.parent.resolve() and self._takes(path, file):
                raise click.UsageError(f"A picture may replace `{file}`; give --attention another name.")
        self._path = path
        self._lines = self._sentences = self._written = 0
        self._first: tuple[Attention, int] | None = None
        self._failure: Exception | None = None

    @staticmethod
    def _takes(path: Path, file: Path) -> bool:
        pattern = re.escape(path.stem) + r"(-\d+)?" + re.escape(path.suffix)
        return re.fullmatch(pattern, file.name, re.IGNORECASE) is not None  # some file systems ignore case

    def add(self, attention: Attention) -> None:
        """Draw the attention of the next line; a blank line has no picture."""
        self._lines += 1
        if not attention.weights.size:
            return
        self._sentences += 1
        if self._sentences == 1:
            self._first = attention, self._lines  # its name depends on whether there is a second one
            return
        if self._first is not None:
            self._write(*self._first)
            self._first = None
        self._write(attention, self._lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        else:
            with suppress(Exception):  # report the first failure
                self._finish()

    def _finish(self) -> None:
        """Write the remaining picture, and print how many there are."""
        if self._first is not None:
            self._write(self._first[0], None)
        if self._failure is not None:
            raise self._failure
        console(stderr=True).print(f"Pictures of attention written: {self._written}.")

    def _write(self, attention: Attention, line: int | None) -> None:
        if self._failure is not None:
            return
        path = self._path if line is None else self._path.with_stem(f"{self._path.stem}-{line}")
        try:
            draw_attention(attention, path)
            self._written += 1
        except Exception as error:
            self._failure = error
