"""Bundles as models with a name: what they translate, without opening them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeformer_runtime.bundle.manifest import Manifest, decode_manifest
from edgeformer_runtime.bundle.open import not_a_bundle
from edgeformer_runtime.bundle.plain_files import read_plain, reading
from edgeformer_runtime.bundle.provenance import Origin
from edgeformer_runtime.bundle.text_format import meant_code
from edgeformer_runtime.contract import DECODER_FILE, MANIFEST_FILE
from edgeformer_runtime.limits import MAX_MANIFEST_BYTES
from edgeformer_runtime.precision import Precision

ManifestStamp = tuple[int, int, int]
"""Inode, time of modification and size of a manifest: another one means another bundle."""


@dataclass(frozen=True)
class Model:
    """A bundle that can be opened."""

    name: str
    path: Path
    manifest: Manifest
    sources: frozenset[str]
    """Codes of the languages that it translates from."""
    targets: frozenset[str]
    """Codes of the languages that it translates to."""
    stamp: ManifestStamp

    @property
    def nbytes(self) -> int:
        """Size of the bundle's files, in bytes."""
        return sum(entry.size for entry in self.manifest.files.values())

    @property
    def origin(self) -> Origin:
        """The text that it was trained on, or the model that was imported, with its license."""
        return self.manifest.provenance.origin()

    @property
    def precision(self) -> Precision:
        """Precision of the decoder's weights."""
        return self.manifest.precision[DECODER_FILE]

    def facts(self) -> dict[str, Any]:
        """What commands say of it as JSON."""
        return {
            "name": self.name,
            "path": self.path,
            "sources": sorted(self.sources),
            "targets": sorted(self.targets),
            "family": self.manifest.family,
            "precision": self.precision,
            "parameters": self.manifest.parameters,
            "bytes": self.nbytes,
            "origin": self.origin.name,
            "revision": self.origin.revision,
            "license": self.origin.licence,
        }

    @property
    def aliases(self) -> frozenset[str]:
        """Codes of languages that have a shorter one, too, which is shown instead: ``deu_Latn`` for ``de``."""
        shortest: dict[str, str] = {}
        for code, token in sorted(self.manifest.text.languages.items(), key=lambda item: len(item[0])):
            shortest.setdefault(token, code)
        return frozenset(self.manifest.text.languages) - {*shortest.values()}

    def translates(self, source: str, target: str) -> bool:
        """Whether it translates between two languages."""
        return source in self.sources and target in self.targets and source != target

    def pair(self, source: str, target: str) -> tuple[str, str]:
        """Return the model's codes of two languages: those that are empty become the only ones."""
        return meant_code(source, self.sources) or source, meant_code(target, self.targets) or target


def is_named(path: Path) -> bool:
    """Whether a bundle is found by the name of its folder: one that begins with a dot is hidden."""
    return not path.name.startswith(".") and (path / MANIFEST_FILE).is_file()


def stamp_of(path: Path) -> ManifestStamp | None:
    """The stamp of a bundle folder; ``None`` if there is none at present."""
    try:
        status = (path / MANIFEST_FILE).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_model(name: str, path: Path) -> Model:
    """Read a manifest. The files that it lists are checked when the bundle is opened.

    Raises:
        BundleError: there is no manifest, or it is not valid.
    """
    stamp = stamp_of(path)
    if stamp is None:
        raise not_a_bundle(path)
    with reading(path / MANIFEST_FILE):
        manifest = decode_manifest(read_plain(path / MANIFEST_FILE, MAX_MANIFEST_BYTES))
    sources, targets = _languages(name, manifest)
    return Model(name, path, manifest, sources, targets, stamp)


def _languages(name: str, manifest: Manifest) -> tuple[frozenset[str], frozenset[str]]:
    """Languages that a model translates from and to: those it has tokens for, else those of the manifest, else those in
    its name, as in ``en-fr``."""
    source, target = manifest.source_language, manifest.target_language
    if not manifest.text.languages and not (source and target):
        first, dash, second = name.partition("-")
        source, target = (source or first, target or second) if dash else (source, target)
    return manifest.text.between(source, target)
