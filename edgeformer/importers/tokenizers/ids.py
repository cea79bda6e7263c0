"""Vocabularies as mappings from entries to ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_json

MAX_UNUSED = 1024
"""Ids without an entry; tables are padded to a multiple of some number."""
UNUSED = "<unused {}>"
"""Name of an id without an entry, which is in no text."""


def read_ids(file: Path) -> dict[str, int]:
    """Read a JSON file with the id of each entry."""
    return checked_ids(read_json(file, dict[str, Any]), file)


def checked_ids(ids: Any, file: Path) -> dict[str, int]:
    """Return a vocabulary of a file, which must give an id of its own to each entry."""
    try:
        checked = msgspec.convert(ids, dict[str, Annotated[int, msgspec.Meta(ge=0)]])
    except msgspec.ValidationError as error:
        raise ImporterError(f"`{file}` is damaged: it must give an id to each entry ({error}).") from None
    if not checked or len(set(checked.values())) < len(checked):
        raise ImporterError(f"`{file}` must give an id of its own to each entry.")
    return checked


def with_added(ids: Mapping[str, int], added: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    """Add tokens to a vocabulary; those without an id follow its last entry, in order.

    Raises:
        ImporterError: two entries have the same id.
    """
    added = [(name, index) for name, index in added if name not in ids]
    result = {**ids, **{name: index for name, index in added if index is not None}}
    following = max(result.values(), default=-1) + 1
    for name, index in added:
        if index is None:
            result[name] = following
            following += 1
    if len(set(result.values())) < len(result):
        raise ImporterError("Two entries of the vocabulary have the same id.")
    return result


def padded(ids: Mapping[str, int], rows: int | None = None) -> dict[str, int]:
    """Name the ids that no entry has, up to the highest one, or for an embedding of ``rows`` entries.

    Raises:
        ImporterError: the vocabulary has more entries, or far fewer.
    """
    size = max(ids.values(), default=-1) + 1
    rows = size if rows is None else rows
    if size > rows or rows - len(ids) > MAX_UNUSED:
        raise ImporterError(
            f"The vocabulary has {len(ids):,} entries with ids up to {size - 1:,}, which do not fit {rows:,} rows."
        )
    taken = set(ids.values())
    return {**ids, **{UNUSED.format(index): index for index in range(rows) if index not in taken}}


def names_of(ids: Mapping[str, int]) -> list[str]:
    """Entries in the order of their ids, which have no gaps."""
    return sorted(ids, key=ids.__getitem__)


def unused_names(ids: Iterable[str]) -> list[str]:
    """Those of a vocabulary's entries that :func:`padded` has named."""
    start, _ = UNUSED.split("{}")
    return [name for name in ids if name.startswith(start)]
