"""Many bundles, opened on demand within a memory budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Self

from edgeformer_runtime.bundle.open import Bundle, open_bundle
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.errors import BundleError, ConfigError, EdgeformerError
from edgeformer_runtime.models.model import ManifestStamp, Model, is_named, read_model, stamp_of
from edgeformer_runtime.models.names import find_bundle
from edgeformer_runtime.translator import Translator
from edgeformer_server.languages import Catalog

OPEN_ATTEMPTS, OPEN_PAUSE_SECONDS = 5, 0.05
"""How often a bundle that changes meanwhile is opened, and the time between two attempts."""


@dataclass(eq=False)
class _OpenModel:
    """An open translator and how many use it."""

    translator: Translator
    stamp: ManifestStamp
    uses: int = 0
    used: float = 0.0
    """When it was last used."""
    is_retired: bool = False
    """Whether it is closed when nobody uses it any more, because its bundle was replaced or removed."""


@dataclass(eq=False)
class _ModelSlot:
    """What is open of one name."""

    opening: Lock = field(default_factory=Lock)
    opened: _OpenModel | None = None
    refused: ManifestStamp | None = None
    """A replacement that could not be opened; the bundle before it stays in use."""


OpenTranslator = Callable[[Bundle], Translator]
"""Opens a checked bundle."""


class Workspace:
    """Bundles by name, of which those in use, and as many others as a budget allows, are open. Thread-safe.

    A bundle that is replaced on disk, by renaming another folder to its name, is opened again by the next
    :meth:`lease`; translations that have begun end with the old one. Bundles that appear in a watched folder, or
    disappear from it, are noticed within ``refresh_seconds``.

    Args:
        paths: bundle folders by name.
        folder: a folder whose subfolders are bundles, each named after its folder.
        memory: bytes of bundle files to keep open; the least recently used bundle that is not in use is closed first.
            Bundles in use may exceed it. ``None`` means no limit.
        open_translator: opens a bundle; by default, :meth:`Translator.open`.
        trusted_keys: public keys, one of which must have signed each bundle; see
            :func:`~edgeformer_runtime.bundle.open.open_bundle`.
        refresh_seconds: how long a list of the bundles is used before the disk is looked at again.

    Raises:
        BundleError: a path of ``paths`` is not a bundle, or ``folder`` has none.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        *,
        folder: Path | None = None,
        memory: int | None = None,
        open_translator: OpenTranslator = Translator.open,
        trusted_keys: Sequence[str | Path | bytes] | None = None,
        refresh_seconds: float = 1.0,
    ) -> None:
        self._paths, self._folder, self._memory = dict(paths), folder, memory
        self._open_translator, self._trusted_keys, self._refresh_seconds = (
            open_translator,
            trusted_keys,
            refresh_seconds,
        )
        self.close_translator: Callable[[Translator], object] = Translator.close
        """Closes a model that nobody uses any more."""
        self._slots: dict[str, _ModelSlot] = {}
        self._lock = Lock()
        self._catalog = Catalog([read_model(name, path) for name, path in self._paths.items()])
        self._refreshed = float("-inf")
        if not self.catalog().models:
            raise BundleError(
                f"`{folder}` has no bundle: none of its folders has a `{MANIFEST_FILE}` that can be read."
                if folder is not None
                else "There is no bundle; give at least one."
            )

    @classmethod
    def of(cls, arguments: Sequence[str], **settings: object) -> Self:
        """Make a workspace from arguments of a command line.

        Args:
            arguments: bundles as ``PATH``, ``NAME=PATH`` or the name of a model, or a folder of bundles. A path that
                exists is never taken as ``NAME=PATH``.
            settings: further arguments of :class:`Workspace`.

        Raises:
            BundleError: see :class:`Workspace`.
            ConfigError: two bundles have the same name, or there are several folders of bundles.
        """
        paths: dict[str, Path] = {}
        folder: Path | None = None
        for argument in arguments:
            name, equals, rest = argument.partition("=")
            is_named = bool(equals) and bool(name) and not Path(argument).exists()
            path = Path(rest) if is_named else find_bundle(argument)
            if not is_named and path.is_dir() and not (path / MANIFEST_FILE).exists():
                if folder is not None:
                    raise ConfigError(f"Give one folder of bundles, not both `{folder}` and `{path}`.")
                folder = path
                continue
            name = name if is_named else path.resolve().name
            if name in paths:
                raise ConfigError(f"Two bundles have the name `{name}`; name one of them: `NAME={path}`.")
            paths[name] = path
        return cls(paths, folder=folder, **settings)  # type: ignore[arg-type]  # settings are checked by the constructor

    def catalog(self) -> Catalog:
        """The models: those given by name first, then those of the folder by name."""
        removed: list[Translator] = []
        with self._lock:
            if time.monotonic() - self._refreshed >= self._refresh_seconds:
                self._catalog = Catalog(self._scanned())
                self._refreshed = time.monotonic()
                removed = self._removed()
            catalog = self._catalog
        for translator in removed:
            self.close_translator(translator)
        return catalog

    @contextmanager
    def lease(self, name: str) -> Iterator[Translator]:
        """Use a model, which stays open for the length of a ``with`` statement; it is opened first if necessary.

        Raises:
            EdgeformerError: see :meth:`Translator.open`.
            OptionError: there is no such model.
        """
        with self._used(self._acquire(name)) as translator:
            yield translator

    def lease_open(self, name: str) -> AbstractContextManager[Translator] | None:
        """Lease a model that is open as it is on disk, which takes no time; ``None`` if it is not.

        Raises:
            OptionError: there is no such model.
        """
        stamp = stamp_of(self.catalog().model(name).path)
        with self._lock:
            slot = self._slots.get(name)
            if slot is None or slot.opened is None or stamp not in (slot.opened.stamp, slot.refused):
                return None
            slot.opened.uses += 1
            return self._used(slot.opened)

    @contextmanager
    def _used(self, opened: _OpenModel) -> Iterator[Translator]:
        try:
            yield opened.translator
        finally:
            self._release(opened)

    def has_changed(self, translator: Translator) -> bool:
        """Whether the bundle of a translator was replaced or removed since it was opened."""
        with self._lock:
            opened = next(
                (s.opened for s in self._slots.values() if s.opened and s.opened.translator is translator), None
            )
        return opened is None or stamp_of(translator.bundle.path) != opened.stamp

    @property
    def open_models(self) -> dict[str, int]:
        """Bytes of the files of each open bundle, by name."""
        with self._lock:
            return {name: slot.opened.translator.bundle.nbytes for name, slot in self._slots.items() if slot.opened}

    def is_open(self, model: Model) -> bool:
        """Whether a model is open as it is on disk, rather than closed or replaced by what has not been opened."""
        with self._lock:
            slot = self._slots.get(model.name)
            return slot is not None and slot.opened is not None and slot.opened.stamp == model.stamp

    def close(self) -> None:
        """Close all translators, which must not be in use."""
        with self._lock:
            opened = [slot.opened for slot in self._slots.values() if slot.opened]
            self._slots.clear()
        for each in opened:
            each.translator.close()

    def _release(self, opened: _OpenModel) -> None:
        """End a use of a model, and close what is not needed any more."""
        with self._lock:
            opened.uses -= 1
            opened.used = time.monotonic()
            closing = [opened.translator] if opened.is_retired and not opened.uses else []
            closing += self._evicted(0)
        for translator in closing:
            self.close_translator(translator)

    def _scanned(self) -> list[Model]:
        """Models as they are on disk now."""
        paths = dict(self._paths)
        for path in _bundles_in(self._folder) if self._folder is not None else ():
            paths.setdefault(path.name, path)
        return _read_models(paths, {model.name: model for model in self._catalog.models})

    def _removed(self) -> list[Translator]:
        """Take out what is open of bundles that are not there any more, and return what nobody uses of it.
        The lock must be held; the translators must be closed without it."""
        closing, names = [], {model.name for model in self._catalog.models}
        for name, slot in self._slots.items():
            if slot.opened is not None and name not in names:
                slot.opened.is_retired = True
                closing += [] if slot.opened.uses else [slot.opened.translator]
                slot.opened = None
        return closing

    def _acquire(self, name: str) -> _OpenModel:
        """Return an open model, counted as in use."""
        model = self.catalog().model(name)
        with self._lock:
            slot = self._slots.setdefault(name, _ModelSlot())
        with slot.opening:
            stamp = stamp_of(model.path)
            with self._lock:
                opened = slot.opened
                if opened is not None:
                    opened.uses += 1  # so that it stays open while its replacement is opened
            if opened is not None and (stamp is None or stamp in (opened.stamp, slot.refused)):
                return opened
            try:
                replacement = self._open(model)
            except EdgeformerError:
                if opened is None:
                    raise
                slot.refused = stamp
                return opened
            except BaseException:
                if opened is not None:
                    self._release(opened)
                raise
            with self._lock:
                slot.opened = replacement
                replacement.uses += 1
                if opened is not None:
                    opened.is_retired = True
        if opened is not None:
            self._release(opened)
        return replacement

    def _open(self, model: Model) -> _OpenModel:
        """Open a bundle, and begin again if it is replaced or missing at this moment."""
        for attempt in range(1, OPEN_ATTEMPTS + 1):
            stamp = stamp_of(model.path)
            try:
                bundle = open_bundle(model.path, trusted_keys=self._trusted_keys)
                with self._lock:
                    closing = self._evicted(bundle.nbytes)
                for translator in closing:
                    translator.close()
                return _OpenModel(self._open_translator(bundle), stamp or model.stamp)
            except EdgeformerError:
                if attempt == OPEN_ATTEMPTS or (stamp is not None and stamp_of(model.path) == stamp):
                    raise
                time.sleep(OPEN_PAUSE_SECONDS)
        raise AssertionError("unreachable")

    def _evicted(self, needed: int) -> list[Translator]:
        """Take idle models out, the least recently used first, until the rest and ``needed`` bytes fit the budget.
        The lock must be held; the translators must be closed without it."""
        if self._memory is None:
            return []
        slots = [slot for slot in self._slots.values() if slot.opened]
        total = needed + sum(slot.opened.translator.bundle.nbytes for slot in slots if slot.opened)
        evicted = []
        for slot in sorted(slots, key=lambda slot: slot.opened.used if slot.opened else 0.0):
            if total <= self._memory:
                break
            if slot.opened and not slot.opened.uses:
                total -= slot.opened.translator.bundle.nbytes
                evicted.append(slot.opened.translator)
                slot.opened = None
        return evicted


def _bundles_in(folder: Path) -> list[Path]:
    """Bundles in a folder that are found by name, in the order of their names. A missing folder has none."""
    return [path for path in sorted(folder.iterdir()) if is_named(path)] if folder.is_dir() else []


def _read_models(paths: Mapping[str, Path], known: Mapping[str, Model]) -> list[Model]:
    """Read models by name. One whose manifest cannot be read is left out.

    Args:
        paths: bundle folders.
        known: models as they were before. A manifest is read again only if it has changed; if it cannot be read
            because it is being replaced, the model stays.
    """
    models = []
    for name, path in paths.items():
        model = known.get(name)
        if model is None or model.stamp != stamp_of(path):
            with suppress(BundleError):
                model = read_model(name, path)
        models += [model] if model else []
    return models
