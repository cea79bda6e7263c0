"""Power failures: every state of the disk that one may leave, from a record of the system calls of a program.

Nothing is on the disk for certain before ``fsync``. Until then, a file may be empty, cut off, or full of zeros, and
every change of names in a folder may or may not be there, in any combination; only one call, such as a rename, is done
completely or not at all. This is what POSIX leaves open, and more than journals of usual file systems do.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

from edgeformer_runtime.temporaries import OUTGOING
from robustness.interruptions.kills import Moment, judged
from robustness.interruptions.strace import calls_of, traced
from robustness.interruptions.writing import Content, Writing, content_of

MAX_PENDING = 12
"""Changes of names whose every combination is tried; of more, as many combinations are drawn."""
MIXTURES = 8
"""Combinations of damaged and whole files beside those in which all are damaged in one way."""

Tree = dict[int, dict[str, int]]
"""Entries of every folder: inode by name."""
ROOT = 0
"""Inode of the folder that everything happens in."""


class Names(NamedTuple):
    """Entries of folders that one call changes: folder, name, and inode or ``None`` for none."""

    entries: tuple[tuple[int, str, int | None], ...]


class Written(NamedTuple):
    """A file got content."""

    inode: int


class Synced(NamedTuple):
    """A file or folder was synchronized."""

    inode: int


Event = Names | Written | Synced


class Record:
    """What a program did to a folder.

    Args:
        folder: the folder, as it is before the program runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.tree: Tree = {}
        """The folder now, after all events."""
        self.contents: dict[int, bytes] = {}
        """Content of the files, as it is in the end."""
        self._next = ROOT
        self._scan(folder)
        self.initial: Tree = {inode: dict(entries) for inode, entries in self.tree.items()}
        self.old_files = frozenset(self.contents)

    def add(self, line: str) -> None:
        """Add a call from a line of strace's."""
        match = re.match(r"\d+ +(\w+)\((.*)\) += (\d+)", line)
        if match is None:  # it failed
            return
        name, arguments, _ = match.groups()
        described = [Path(text) for text in re.findall(r"\d+<([^>]*)>", arguments)]
        quoted = [Path(text) for text in re.findall(r'"([^"]*)"', arguments)]
        if name in ("fsync", "fdatasync"):
            self.events.append(Synced(self._inode(described[0])))
        elif name in ("write", "writev", "pwrite64", "ftruncate", "fallocate", "sendfile", "copy_file_range"):
            self.events.append(Written(self._inode(described[-1 if name == "copy_file_range" else 0])))
        elif name == "openat":
            self._open(quoted[0], arguments)
        elif name in ("mkdir", "mkdirat"):
            self._change((quoted[0], self._new(is_folder=True)))
        elif name in ("rename", "renameat", "renameat2"):
            first, second = quoted
            moved, replaced = self._inode(first), self._find(second)
            self._change((first, replaced if "RENAME_EXCHANGE" in arguments else None), (second, moved))
        elif name in ("unlink", "rmdir", "unlinkat"):
            relative = not quoted[0].is_absolute()
            self._change((described[0] / quoted[0] if relative else quoted[0], None))
        elif name not in ("chmod", "fchmod", "fchmodat", "utimensat", "flock"):
            raise RuntimeError(f"No rule says what this does to a disk: {line}")

    def end(self) -> None:
        """Read the content of the files that the program wrote."""
        for path, inode in self._files(ROOT, self.folder):
            self.contents[inode] = path.read_bytes()

    def _scan(self, path: Path) -> int:
        inode, self._next = self._next, self._next + 1
        if path.is_dir():
            self.tree[inode] = {}
            for entry in sorted(path.iterdir()):
                self.tree[inode][entry.name] = self._scan(entry)
        else:
            self.contents[inode] = path.read_bytes()
        return inode

    def _new(self, *, is_folder: bool) -> int:
        inode, self._next = self._next, self._next + 1
        if is_folder:
            self.tree[inode] = {}
        else:
            self.contents[inode] = b""
        return inode

    def _find(self, path: Path) -> int | None:
        inode: int | None = ROOT
        for part in path.relative_to(self.folder).parts:
            inode = None if inode is None else self.tree.get(inode, {}).get(part)
        return inode

    def _inode(self, path: Path) -> int:
        inode = self._find(path)
        assert inode is not None, path
        return inode

    def _open(self, path: Path, arguments: str) -> None:
        inode = self._find(path)
        if inode is None:
            self._change((path, self._new(is_folder=False)))
        elif "O_TRUNC" in arguments:
            self.events.append(Written(inode))

    def _change(self, *entries: tuple[Path, int | None]) -> None:
        event = Names(tuple((self._inode(path.parent), path.name, inode) for path, inode in entries))
        self.events.append(event)
        apply(self.tree, event)

    def _files(self, inode: int, path: Path) -> Iterator[tuple[Path, int]]:
        for name, entry in self.tree[inode].items():
            if entry in self.tree:
                yield from self._files(entry, path / name)
            else:
                yield path / name, entry


def apply(tree: Tree, event: Names) -> None:
    """Change the names in a tree."""
    for folder, name, inode in event.entries:
        if inode is None:
            tree[folder].pop(name, None)
        else:
            tree[folder][name] = inode


State = tuple[tuple[str, bytes | None], ...]
"""A folder: path and content of everything in it; the content of a folder is ``None``."""


def states(record: Record, name: str, random: Random) -> Iterator[tuple[int, State]]:
    """Every different state that a power failure may leave, with the number of events before it.

    Args:
        record: what a program did.
        name: what it replaced.
        random: draws choices where not all are tried.
    """
    seen: set[int] = set()
    for count in range(len(record.events) + 1):
        events = record.events[:count]
        written = {event.inode for event in events if isinstance(event, Written)}
        unsynced = {event.inode for event in unsettled(events) if isinstance(event, Written)}
        for tree in _trees(record, events, random):
            for state in _contents(record, name, tree, written, unsynced, random):
                if (key := hash(state)) not in seen:
                    seen.add(key)
                    yield count, state


def unsettled(events: list[Event]) -> list[Names | Written]:
    """The events after which nothing that they changed was synchronized."""
    pending: list[Names | Written] = []
    synced: set[int] = set()
    for event in reversed(events):
        if isinstance(event, Synced):
            synced.add(event.inode)
            continue
        changed = {event.inode} if isinstance(event, Written) else {folder for folder, _, _ in event.entries}
        if not changed & synced:
            pending.append(event)
    return pending[::-1]


def _trees(record: Record, events: list[Event], random: Random) -> Iterator[Tree]:
    """The names that may be there: those that are synchronized, with every choice of the others."""
    pending = [id(event) for event in unsettled(events) if isinstance(event, Names)]
    choices: Iterable[int] = range(2 ** len(pending))
    if len(pending) > MAX_PENDING:
        prefixes = [2**length - 1 for length in range(len(pending) + 1)]
        choices = chain(prefixes, (random.getrandbits(len(pending)) for _ in range(2**MAX_PENDING)))
    for choice in choices:
        dropped = {event for place, event in enumerate(pending) if not choice >> place & 1}
        tree = {inode: dict(record.initial.get(inode, {})) for inode in record.tree}
        for event in events:
            if isinstance(event, Names) and id(event) not in dropped:
                apply(tree, event)
        yield tree


def _contents(
    record: Record, name: str, tree: Tree, written: set[int], unsynced: set[int], random: Random
) -> Iterator[State]:
    """The contents that the files of a tree may have.

    They vary below ``name``, and below what may get that name again. Other files that are not synchronized, which
    nobody reads, are cut off.
    """
    paths = list(_walk(tree, ROOT, ""))
    read = [inode for path, inode in paths if inode in unsynced and {name, OUTGOING} & set(Path(path).parts)]
    ways = len(_damaged(b""))
    choices = [[way] * len(read) for way in range(ways if read else 1)]
    if read:
        choices += [[random.randrange(ways) for _ in read] for _ in range(MIXTURES)]
    for choice in choices:
        content = dict(record.contents)
        content |= {inode: b"" for inode in record.contents if inode not in written | record.old_files}
        content |= {inode: _damaged(record.contents[inode])[0] for inode in unsynced}
        for inode, way in zip(read, choice, strict=True):
            content[inode] = _damaged(record.contents[inode])[way]
        yield tuple((path, content.get(inode)) for path, inode in paths)


def _damaged(data: bytes) -> tuple[bytes, ...]:
    """What a file may contain whose content was not synchronized."""
    half = len(data) // 2
    return data[:half], data, b"", bytes(len(data)), data[:half] + bytes(len(data) - half)


def _walk(tree: Tree, inode: int, path: str) -> Iterator[tuple[str, int]]:
    for name, entry in sorted(tree[inode].items()):
        yield f"{path}{name}", entry
        if entry in tree:
            yield from _walk(tree, entry, f"{path}{name}/")


class Disk:
    """A folder that states are created in.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.root, self._pool = folder / "disk", folder / "pool"
        self._pool.mkdir()

    def become(self, state: State) -> None:
        """Replace everything by a state."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for name, data in state:
            if data is None:
                (self.root / name).mkdir()
                continue
            file = self._pool / hashlib.sha256(data).hexdigest()
            if not file.exists():
                file.write_bytes(data)
            os.link(file, self.root / name)


def power_failures(writing: Writing, folder: Path, seed: int) -> Iterator[tuple[int, Moment]]:
    """Record a program; yields the number of its changes, and what every possible power failure leaves.

    Args:
        writing: the program.
        folder: an empty folder.
        seed: seed of the choices, where not all are tried.

    Raises:
        RuntimeError: the program fails, or a system call has no rule.
    """
    source, target = writing.prepare(folder)
    old, record = content_of(target), Record(target.parent)
    trace = traced(writing.program, source, target, inject=writing.inject)
    if trace.status:
        raise RuntimeError(trace.stderr)
    for call in calls_of(trace, target.parent):
        record.add(call.line)
    record.end()
    new = content_of(target)
    assert new is not None
    disk = Disk(folder)
    for moment in survey(record, disk, target.name, old, new, seed):
        yield 0, moment


def survey(record: Record, disk: Disk, name: str, old: Content | None, new: Content, seed: int) -> Iterator[Moment]:
    """Create every state that a power failure may leave, and tell what has the name in it."""
    for count, state in states(record, name, Random(seed)):
        disk.become(state)
        yield judged(disk.root / name, old, new, f"power failure after {count} of {len(record.events)} changes")
