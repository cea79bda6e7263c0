"""Deliberately modified copies of bundles. Does not require torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from edgeformer_runtime.bundle.open import file_sha256, manifest_hash_line
from edgeformer_runtime.contract import ATTENTION_FILE, GOLDEN_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.translator import Translator

BUNDLE_FILES = (
    *("README.md", "attention.onnx", "decoder.onnx", "encoder.onnx", "golden.json", "manifest.json"),
    *("manifest.json.sha256", "tokenizer.json", "weights.bin"),
)
"""All files of a bundle with attention weights and one tokenizer."""


def onnx_session(translator: Translator) -> OnnxSession:
    """The session of a translator that runs in ONNX Runtime."""
    session = translator.session
    assert isinstance(session, OnnxSession)
    return session


def copy_of(bundle: Path, folder: Path) -> Path:
    """Make a copy that may be modified."""
    return Path(shutil.copytree(bundle, folder / "bundle"))


def edit_manifest(bundle: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Modify the manifest and update its hash, so that only its content is wrong."""
    tree = json.loads((bundle / MANIFEST_FILE).read_bytes())
    change(tree)
    write_manifest(bundle, json.dumps(tree).encode())
    return bundle


def write_manifest(bundle: Path, data: bytes) -> None:
    """Write a manifest and its hash."""
    (bundle / MANIFEST_FILE).write_bytes(data)
    (bundle / MANIFEST_HASH_FILE).write_bytes(manifest_hash_line(data))


def rehash(bundle: Path) -> Path:
    """Update the hashes in the manifest to the current files."""

    def change(tree: dict[str, Any]) -> None:
        for name, entry in tree["files"].items():
            entry.update(size=(bundle / name).stat().st_size, sha256=file_sha256(bundle / name))

    return edit_manifest(bundle, change)


def edit_golden(bundle: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Modify the golden file and update its hash."""
    tree = json.loads((bundle / GOLDEN_FILE).read_bytes())
    change(tree)
    (bundle / GOLDEN_FILE).write_text(json.dumps(tree), encoding="utf-8")
    return rehash(bundle)


def without_attention(bundle: Path) -> Path:
    """Remove the attention graph, as if the model had no attention."""
    (bundle / ATTENTION_FILE).unlink()
    return edit_manifest(bundle, lambda tree: [tree[key].pop(ATTENTION_FILE) for key in ("files", "precision")])


def opened_graphs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the names of the bundle's graphs are added whenever the engine opens one."""
    opened: list[str] = []
    original = ort.InferenceSession

    def record(graph: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(graph, str | Path) and Path(graph).name in BUNDLE_FILES:
            opened.append(Path(graph).name)
        return original(graph, *arguments, **options)

    monkeypatch.setattr(ort, "InferenceSession", record)
    return opened
