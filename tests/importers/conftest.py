"""Models of other toolkits: committed, so that importers are tested without these toolkits."""

from __future__ import annotations

import pytest

from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.train.run import Run
from tests.importers.marian_models import MARIAN, expected


@pytest.fixture(scope="session")
def marian_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The committed model of Marian, imported. Do not modify it."""
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    found = read_model(MARIAN / "ssru", None, source_language="en", target_language="fr")
    out = tmp_path_factory.mktemp("imported") / "run"
    return write_run(found.model, out, found.origin, text=[case.source for case in expected("ssru")[:200]])
