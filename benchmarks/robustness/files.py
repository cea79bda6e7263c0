"""The attacks on a bundle: which file each damages, and how case ``number`` of an attack does that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from edgeformer_runtime.contract import MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE
from robustness import mutations
from tests.bundles import rehash, write_manifest
from tests.store import COMMITTED, CPU_PRECISIONS

FILES = {
    "manifest": MANIFEST_FILE,
    "encoder": "encoder.onnx",
    "decoder": "decoder.onnx",
    "attention": "attention.onnx",
    "weights": "weights.bin",
    "tokenizer": "tokenizer.json",
    "golden": "golden.json",
    "signature": SIGNATURE_FILE,
    "signed": None,
}
"""Attacks by name, and the file that each damages; ``signed`` damages any file of a signed bundle. The bundles of
``signature`` and ``signed`` are opened with the signer's key."""
SIGNED = frozenset({"signature", "signed"})
KEY = bytes(range(32))
"""The private key of the signed bundles."""


@dataclass(frozen=True)
class Case:
    """One damaged bundle. The same seed, attack and number make the same bundle."""

    attack: str
    """A key of :data:`FILES`."""
    number: int
    """Number of the case, from 0."""
    seed: int = 0

    @property
    def name(self) -> str:
        """What ``--case`` takes."""
        return f"{self.attack}:{self.number}"

    @property
    def precision(self) -> str:
        """Which of the committed bundles is damaged."""
        return CPU_PRECISIONS[self.number % len(CPU_PRECISIONS)]

    @property
    def rehashed(self) -> bool:
        """Whether the hashes are those of the damaged files: every other round through the bundles."""
        return self.number // len(CPU_PRECISIONS) % 2 == 0

    @property
    def file(self) -> str:
        """Name of the damaged file."""
        random = Random(f"{self.seed}:{self.name}:file")
        return FILES[self.attack] or random.choice([name for name in FILES.values() if name])

    def damaged(self, data: bytes) -> bytes:
        """Content of the file after the attack."""
        random = Random(f"{self.seed}:{self.name}")
        structured = {".json": mutations.random_json, ".onnx": mutations.random_graph, ".bin": mutations.random_weights}
        mutate = random.choice((mutations.random_edits, structured[Path(self.file).suffix]))
        return mutate(random, data)


class Bundles:
    """Copies of the committed bundles, with and without a signature, that are damaged and repaired in place."""

    def __init__(self, folder: Path) -> None:
        for precision in CPU_PRECISIONS:
            shutil.copytree(COMMITTED / precision, folder / "plain" / precision)
        self._folder = folder

    @cached_property
    def key(self) -> bytes:
        """The public key of the signed bundles, in PEM format; signs them on first use."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        from edgeformer_runtime.bundle.signature import sign_manifest

        private = ed25519.Ed25519PrivateKey.from_private_bytes(KEY)
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        shutil.copytree(self._folder / "plain", self._folder / "signed")
        for precision in CPU_PRECISIONS:
            sign_manifest(self._folder / "signed" / precision, pem)
        public: bytes = private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return public

    def keys(self, case: Case) -> list[bytes] | None:
        """The keys to open a bundle with."""
        return [self.key] if case.attack in SIGNED else None

    def path(self, case: Case) -> Path:
        """The undamaged bundle of a case."""
        return self._folder / ("plain" if self.keys(case) is None else "signed") / case.precision

    @contextmanager
    def damaged(self, case: Case) -> Iterator[Path]:
        """The bundle of a case, damaged until the end of the block."""
        path = self.path(case)
        kept = {name: (path / name).read_bytes() for name in (case.file, MANIFEST_FILE, MANIFEST_HASH_FILE)}
        try:
            damage(path, case)
            yield path
        finally:
            for name, data in kept.items():
                (path / name).write_bytes(data)


def damage(path: Path, case: Case) -> None:
    """Damage a bundle, and update its hashes if the case says so."""
    data = case.damaged((path / case.file).read_bytes())
    if case.file == MANIFEST_FILE and case.rehashed:
        write_manifest(path, data)
        return
    (path / case.file).write_bytes(data)
    if case.rehashed and case.file in json.loads((path / MANIFEST_FILE).read_bytes())["files"]:
        rehash(path)
