"""Models of other toolkits: committed, so that importers are tested without these toolkits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.run.folder import Run
from tests.importers.marian_models import MARIAN, expected


@pytest.fixture(scope="session")
def marian_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The committed model of Marian, imported. Do not modify it."""
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    found = read_model(MARIAN / "ssru", None, source_language="en", target_language="fr")
    out = tmp_path_factory.mktemp("imported") / "run"
    return write_run(found.model, out, found.origin, text=[case.source for case in expected("ssru")[:200]])


@pytest.fixture(scope="session")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of small models of ``transformers`` by architecture, each made once. Do not modify them."""
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    from tests.importers.hugging_face_models import ARCHITECTURES

    @cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("hugging_face") / name
        ARCHITECTURES[name](folder)
        return folder

    return make
