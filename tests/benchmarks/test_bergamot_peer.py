"""Firefox's engine translates the files that a model was imported from, with the lists that the bundle has."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
pytest.importorskip("fxtranslate", reason="Firefox's engine is not installed")

import fxtranslate
import msgspec

from edgeformer.errors import ConfigError
from edgeformer.importers.read import ImportResult, read_model
from edgeformer.importers.run_folder import write_run
from edgeformer_bench.peers.base import PeerError, PeerSpec
from edgeformer_bench.peers.bergamot import open_peer
from edgeformer_bench.peers.systems import PeerOptions, firefox
from edgeformer_runtime.bundle.provenance import Provenance
from tests.commands import error, succeeded
from tests.importers.bergamot_models import bergamot_files
from tests.importers.marian_models import expected
from tests.importers.test_bergamot import VOCABULARY, shortlist
from tests.store import COMMITTED

TEXTS = [case.source for case in expected("ssru")[:60]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed model of Marian as Firefox has its models, with lists that most of its translations fit in."""
    folder = tmp_path_factory.mktemp("bergamot") / "model"
    folder.mkdir()
    for name, content in bergamot_files("ssru").items():
        (folder / name).write_bytes(content)
    lists = [[token, (7 * token) % VOCABULARY] for token in range(VOCABULARY)]
    (folder / "lex.50.50.enfr.s2t.bin").write_bytes(shortlist(lists, 1200))
    return folder


def imported(folder: Path) -> ImportResult:
    return read_model(folder, None, source_language="en", target_language="fr")


def test_it_translates_as_the_engine_alone(folder: Path) -> None:
    vocabulary, weights, lists = (next(folder.glob(pattern)).read_bytes() for pattern in ("vocab*", "model*", "lex*"))
    plain, listed = (fxtranslate.Translator(weights, vocabulary, vocabulary, given) for given in (None, lists))
    outputs = {}
    for name, engine, settings in (("plain", plain, {"shortlist": False}), ("listed", listed, {})):
        peer = open_peer(PeerSpec(kind="bergamot", model=str(folder), settings=settings))
        outputs[name] = peer.translate_texts(TEXTS, beam_size=1)
        assert outputs[name] == [engine.translate(text) for text in TEXTS]
        assert len({*outputs[name]}) > 50
    assert outputs["plain"] != outputs["listed"]


def test_what_it_lacks_is_named(folder: Path) -> None:
    peer = open_peer(PeerSpec(kind="bergamot", model=str(folder)))
    with pytest.raises(PeerError, match="greedy search only"):
        peer.translate_texts(TEXTS, beam_size=4)
    with pytest.raises(PeerError, match="give --text-to-text"):
        peer.translate([[3, 0]], beam_size=1, length=None)
    with pytest.raises(PeerError, match="one thread"):
        open_peer(PeerSpec(kind="bergamot", model=str(folder), threads=2))


@pytest.mark.slow
def test_bench_compares_with_it(folder: Path, tmp_path: Path) -> None:
    found, source = imported(folder), tmp_path / "source"
    run = write_run(found.model, tmp_path / "run", found.origin, text=TEXTS)
    bundle = tmp_path / "int8"
    succeeded("export", run.path, "--out", bundle, "--precision", "int8", "--shortlist", "imported")
    source.write_text("\n".join(TEXTS), encoding="utf-8")
    for lists in ("on", "off"):
        against = ("--against", "bergamot", "--checkpoint", folder, "--text-to-text", "--shortlist", lists)
        quick = ("--threads", "1", "--repeat", "1", "--source", source, "--json", "-")
        result = succeeded("bench", bundle, *against, *quick)
        content = msgspec.json.decode(result.stdout)
        assert content["reference"] == "Firefox's engine"
        ours, engine = content["systems"]
        assert engine["version"].startswith("fxtranslate ")
        assert ours["identical"] == content["sentences"] == len(TEXTS)
        # Where products saturate, half of the translations differ.
        assert len(TEXTS) / 4 < engine["identical"] <= len(TEXTS)


def test_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    provenance = Provenance(training={"provenance": imported(folder).origin})
    bundle: Any = SimpleNamespace(path=Path("bundle"), manifest=SimpleNamespace(provenance=provenance))
    contender = firefox(bundle, folder, PeerOptions())
    assert [(spec.model, spec.settings) for spec in contender.specs] == [(str(folder), {"shortlist": False})]
    other = Path(shutil.copytree(folder, tmp_path / "model"))
    next(other.glob("vocab*")).write_bytes(b"another one")
    for model in (other, tmp_path):
        with pytest.raises(ConfigError, match="; give the model of Firefox that it comes from with --checkpoint"):
            firefox(bundle, model, PeerOptions())
    of_nothing: Any = SimpleNamespace(path=Path("bundle"), manifest=SimpleNamespace(provenance=Provenance()))
    with pytest.raises(ConfigError, match="was not imported from"):
        firefox(of_nothing, folder, PeerOptions())


def test_the_model_must_be_given() -> None:
    message = error("bench", COMMITTED / "int8", "--against", "bergamot", "--text-to-text")
    assert "give the model of Firefox that the bundle was imported from with --checkpoint" in message
