"""Argos Translate's packages: imported ones translate as Argos does, and nothing leaves the place it is unpacked to."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")
pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")

import ctranslate2
import sentencepiece
from ctranslate2.specs import TransformerSpec

from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import open_translator
from tests.commands import error
from tests.importers.alignments import check_alignments
from tests.importers.ctranslate2_models import HEADS, fill, save
from tests.importers.marian_models import MARIAN, expected
from tests.importers.packing import pack

PIECES = MARIAN / "ssru" / "vocab.spm"


def package(folder: Path, **metadata: Any) -> Path:
    """An unpacked package, as OpenNMT-py's models become one, with the pieces of another model; returns its folder."""
    root = folder / "translate-en_fr-1_9"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(PIECES))
    pieces = [processor.id_to_piece(index) for index in range(processor.vocab_size())]
    pieces = [piece for piece in pieces if piece not in {"<unk>", "<s>", "</s>"}][:600]
    source, target = ["<unk>", "<blank>", *pieces], ["<unk>", "<blank>", "<s>", "</s>", *pieces, "__fr__"]
    spec: Any = TransformerSpec.from_config((2, 2), HEADS)
    fill(spec, 8, (len(source), len(target)))
    save(spec, root / "model", (source, target), "int8")
    (root / "sentencepiece.model").write_bytes(PIECES.read_bytes())
    described = {"from_code": "en", "to_code": "fr", "from_name": "English", "type": "translate", **metadata}
    (root / "metadata.json").write_text(json.dumps(described))
    (root / "README.md").write_text("# English to French")
    return root


def argos(root: Path, texts: list[str], prefix: str) -> list[tuple[list[str], str]]:
    """Tokens and text as Argos Translate computes them, except that a translation is at most 16 tokens long."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(root / "model"), compute_type="float32", intra_threads=1)
    results = translator.translate_batch(
        [processor.encode(text, out_type=str) for text in texts],
        target_prefix=[[prefix]] * len(texts) if prefix else None,
        max_batch_size=32,
        beam_size=4,
        num_hypotheses=1,
        length_penalty=0.2,
        max_decoding_length=16,
        return_scores=True,
    )
    tokens = [result.hypotheses[0] for result in results]
    texts = ["".join(hypothesis).removeprefix(prefix).replace("▁", " ").removeprefix(" ") for hypothesis in tokens]
    return list(zip(tokens, texts, strict=True))


@pytest.mark.parametrize(
    ("prefix", "count"), [("", 40), ("__fr__", 40), pytest.param("__fr__", 400, marks=pytest.mark.slow)]
)
def test_translations_are_those_of_argos(prefix: str, count: int, tmp_path: Path) -> None:
    root = package(tmp_path, target_prefix=prefix)
    found = read_model(pack(root, "argosmodel"), None)
    assert found.importer == "argos"
    texts = [case.source for case in expected("ssru")[:count]]
    run = write_run(found.model, tmp_path / "run", found.origin, text=texts[:1])
    assert (run.recipe.source_language, run.recipe.target_language) == ("en", "fr")
    ours = open_translator(run.path)
    compared = 0
    given = [prefix] if prefix else []
    translations = ours.translate(texts, max_length=16 - len(given), min_length=1 - len(given))
    for translation, (tokens, text) in zip(translations, argos(root, texts, prefix), strict=True):
        if len(tokens) < 16:  # at the maximum length, CTranslate2 chooses from more hypotheses
            compared += 1
            assert [*given, *ours.target_tokenizer.tokens(translation.best.ids)] == tokens
            if not {"<unk>", "<blank>", "<s>"} & {*tokens}:
                # Argos leaves a space that follows another one at the start.
                assert translation.text == text.lstrip(" ")
    assert compared > count // 20
    check_alignments(ours, texts[:8])


def test_a_package_is_read_packed_and_unpacked(tmp_path: Path) -> None:
    root = package(tmp_path)
    found, other = read_model(root, None), read_model(pack(root, "argosmodel"), None)
    assert found.importer == "argos"
    assert found.model.generation.length_penalty == 0.2
    assert {name: array.tobytes() for name, array in found.model.weights.items()} == {
        name: array.tobytes() for name, array in other.model.weights.items()
    }
    assert set(other.model.hashes) == {"translate-en_fr-1_9.argosmodel"}
    assert {"model.bin", "metadata.json", "sentencepiece.model"} < set(found.model.hashes)


@pytest.mark.parametrize("names", [("spm.model",), ("source.spm", "target.spm"), ("spm.src.model", "spm.tgt.model")])
def test_pieces_beside_a_model_are_used(names: tuple[str, ...], tmp_path: Path) -> None:
    root = package(tmp_path)
    for name in names:
        (root / "model" / name).write_bytes(PIECES.read_bytes())
    found, other = read_model(root / "model", None), read_model(root, None)
    assert found.importer == "ctranslate2"
    assert found.model.source_tokenizer == other.model.source_tokenizer
    assert found.model.target_tokenizer == other.model.target_tokenizer


def rewritten(path: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> Path:
    with zipfile.ZipFile(path) as archive:
        members = change({name: archive.read(name) for name in archive.namelist()})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda members: {key: data for key, data in members.items() if not key.endswith(name)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("sentencepiece.model"), "The package has no tokenizer"),
        (
            lambda members: {**without("sentencepiece.model")(members), "translate-en_fr-1_9/bpe.model": b"#version"},
            "import a later package of the pair, or run its folder `model` in CTranslate2",
        ),
        (without("model.bin"), "model.bin"),
        (without("metadata.json"), "metadata.json` cannot be read: No such file"),
        (
            lambda members: {**members, "translate-en_fr-1_9/metadata.json": b'{"type": "sbd"}'},
            "of the type `sbd`, and not for translation",
        ),
        (
            lambda members: {**members, "translate-en_fr-1_9/metadata.json": b"["},
            "metadata.json` is damaged",
        ),
    ],
)
def test_refused_packages(change: Callable[[dict[str, bytes]], dict[str, bytes]], message: str, tmp_path: Path) -> None:
    path = rewritten(pack(package(tmp_path), "argosmodel"), change)
    before = sorted(tmp_path.iterdir())
    command = ["import", str(path), "--from", "argos", "--out", str(tmp_path / "run")]
    assert message in error(*command)
    assert sorted(tmp_path.iterdir()) == before
