"""Copies of a bundle, changed on purpose. Needs no torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgeformer_runtime.bundle.open import file_sha256, manifest_hash_line
from edgeformer_runtime.contract import ATTENTION_FILE, GOLDEN_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE

BUNDLE_FILES = (
    "README.md",
    "attention.onnx",
    "decoder.onnx",
    "encoder.onnx",
    "golden.json",
    "manifest.json",
    "manifest.json.sha256",
    "tokenizer.json",
    "weights.bin",
)
"""All files of a bundle with attention weights and one tokenizer."""


def copy_of(bundle: Path, folder: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(bundle, folder / "bundle"))


def edit_manifest(bundle: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the manifest and write its hash again, so that only its content is wrong."""
    tree = json.loads((bundle / MANIFEST_FILE).read_bytes())
    change(tree)
    write_manifest(bundle, json.dumps(tree).encode())
    return bundle


def write_manifest(bundle: Path, data: bytes) -> None:
    """Write a manifest and its hash."""
    (bundle / MANIFEST_FILE).write_bytes(data)
    (bundle / MANIFEST_HASH_FILE).write_bytes(manifest_hash_line(data))


def rehash(bundle: Path) -> Path:
    """Make the manifest list the files as they are now."""

    def change(tree: dict[str, Any]) -> None:
        for name, entry in tree["files"].items():
            entry.update(size=(bundle / name).stat().st_size, sha256=file_sha256(bundle / name))

    return edit_manifest(bundle, change)


def edit_golden(bundle: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the golden file, with its hash."""
    tree = json.loads((bundle / GOLDEN_FILE).read_bytes())
    change(tree)
    (bundle / GOLDEN_FILE).write_text(json.dumps(tree), encoding="utf-8")
    return rehash(bundle)


def without_attention(bundle: Path) -> Path:
    """Take the attention graph out, as if the model had none."""
    (bundle / ATTENTION_FILE).unlink()
    return edit_manifest(bundle, lambda tree: [tree[key].pop(ATTENTION_FILE) for key in ("files", "precision")])
