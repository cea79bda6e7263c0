"""Marian's models: translations are Marian's own, token for token, and what cannot be represented is refused."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer.errors import CheckpointError, ImporterError
from edgeformer.importers.archive import read_npz
from edgeformer.importers.layout import halves
from edgeformer.importers.marian.files import find_files, has_options
from edgeformer.importers.marian.importer import read_marian
from edgeformer.importers.marian.options import model_config, read_options, refuse_unknown
from edgeformer.importers.marian.vocabularies import read_vocabulary
from edgeformer.importers.read import read_model
from edgeformer.importers.registry import NO_OVERRIDES
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import open_translator
from edgeformer.run.folder import Run
from edgeformer_export.export import export_run
from edgeformer_runtime.errors import OptionError
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translator import AnyTranslator, Translator
from tests.commands import error, succeeded
from tests.commands import run as run_command
from tests.importers.alignments import check_alignments
from tests.importers.marian_models import MARIAN, expected, scored

MODEL = MARIAN / "ssru"
SCORE_TOLERANCE = 1e-4
"""Marian prints five decimals."""
Arrays = dict[str, np.ndarray[Any, Any]]


def compare(translator: AnyTranslator, beam_size: int, count: int, model: str = "ssru") -> None:
    cases = expected(model)[:count]
    translations = translator.translate([case.source for case in cases], beam_size=beam_size, length_penalty=1.0)
    for case, translation in zip(cases, translations, strict=True):
        text, score = (case.beam1, case.score1) if beam_size == 1 else (case.beam4, case.score4)
        assert (case.source, translation.text) == (case.source, text)
        assert translation.score == pytest.approx(score, abs=SCORE_TOLERANCE)


@pytest.mark.slow
def test_the_bundle_translates_as_marian_does(marian_run: Run, tmp_path: Path) -> None:
    export_run(marian_run, tmp_path / "bundle")
    with Translator.open(tmp_path / "bundle") as translator:
        for beam_size in (1, 4):
            compare(translator, beam_size, 400)
    assert translator.defaults.beam_shrinks
    assert translator.defaults.max_len_a == 3


@pytest.fixture(scope="module")
def import_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Import a committed model."""
    pytest.importorskip("sentencepiece")

    @cache
    def imported(name: str) -> Run:
        found = read_model(MARIAN / name, None)
        return write_run(found.model, tmp_path_factory.mktemp(name) / "run", found.origin, text=["Tom is here."])

    return imported


@pytest.mark.parametrize("model", ["ssru", "self-attention"])
@pytest.mark.parametrize("count", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_torch_translates_as_marian_does(import_model: Callable[[str], Run], model: str, count: int) -> None:
    translator = open_translator(import_model(model).path)
    for beam_size in (1, 4):
        compare(translator, beam_size, count, model)
    check_alignments(translator, [case.source for case in expected(model)[:8]])


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_norms_before_sublayers_score_as_in_marian(import_model: Callable[[str], Run], count: int) -> None:
    run, cases = import_model("pre-norm"), scored("pre-norm")[:count]
    scores = open_translator(run.path).score([case.source for case in cases], [case.target for case in cases])
    for case, score in zip(cases, scores, strict=True):
        assert score.mean == pytest.approx(case.score, abs=SCORE_TOLERANCE), case.source
    assert any("keys and values" in note for note in run.info.notes)


def test_the_run_says_where_it_comes_from(marian_run: Run) -> None:
    assert marian_run.info.status == "imported"
    assert marian_run.recipe.source_language == "en"
    assert set(marian_run.info.provenance["sha256"]) == {"model.npz", "vocab.spm"}
    assert len(marian_run.sample) == 200
    assert Run.open(marian_run.path).load_model().source_vocab_size == marian_run.source_tokenizer.vocab_size


def test_runs_of_earlier_versions_are_refused(marian_run: Run, tmp_path: Path) -> None:
    run = Path(shutil.copytree(marian_run.path, tmp_path / "run"))
    (run / "tokenizer.json").rename(run / "tokenizer.spm")
    with pytest.raises(CheckpointError, match="of an earlier version; import its model again"):
        Run.open(run)


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_run_has_its_name_when_it_is_complete(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencepiece")
    out, seen = tmp_path / "run", []
    found = read_model(MODEL, None)

    def save(model: Any, path: Path) -> None:
        seen.append((path.name, out.exists(), sorted(file.name for file in path.parent.iterdir())))
        raise error

    monkeypatch.setattr("edgeformer.importers.run_folder.save_weights", save)
    with pytest.raises(type(error)):
        write_run(found.model, out, found.origin, text=["Tom is here."])
    files = ["checkpoints", "recipe.json", "run.json", "sample.tsv", "tokenizer.json"]
    assert seen == [("model.safetensors", False, files)]
    assert list(tmp_path.iterdir()) == []


def test_the_command_imports_and_says_what_is_next(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    text = tmp_path / "text"
    text.write_text("Tom is here.\nI am hungry.\n", encoding="utf-8")
    command = ["import", str(MODEL), "--out", str(tmp_path / "run"), "--text", str(text)]
    result = succeeded(*command)
    assert "marian" in result.stdout
    assert "Next: edgeformer export" in result.stdout
    assert "is not an empty folder" in error(*command)
    assert "is not an empty folder" in error("import", "hf:nobody/nothing", *command[2:4]), "it is not downloaded"
    shown = CliRunner().invoke(
        main, [*command[:3], str(tmp_path / "other"), *command[4:], "--from", "marian", "--json"]
    )
    assert json.loads(shown.stdout)["family"] == "ssru"


def test_an_imported_recipe_cannot_be_trained(marian_run: Run, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"Tom is here {index}.\tTom est là {index}.\n" for index in range(50)), encoding="utf-8")
    sizes = ["data.valid_size=5", "data.test_size=5"]
    changes = [f"--set={change}" for change in [f'data.train=["{pairs}"]', *sizes]]
    command = ["train", str(marian_run.path / "recipe.json"), "--out", str(tmp_path / "run"), *changes]
    assert "whose tokenizer cannot be trained" in error(*command)


@pytest.mark.slow
def test_the_precision_of_an_imported_model_is_chosen_on_given_text(
    import_model: Callable[[str], Run], tmp_path: Path
) -> None:
    run, cases = import_model("self-attention"), expected("self-attention")[:20]
    files = tmp_path / "source", tmp_path / "reference"
    files[0].write_text("".join(f"{case.source}\n" for case in cases), encoding="utf-8")
    files[1].write_text("".join(f"{case.beam1}\n" for case in cases), encoding="utf-8")
    command = ["export", str(run.path), "--out", str(tmp_path / "bundle"), "--precision", "auto"]
    result = succeeded(*command, "--valid", *map(str, files))
    assert "Measured on source and reference, 20 sentences" in " ".join(result.output.split())
    without = run_command(*command)
    assert without.exit_code == 1
    assert "was imported and has no validation set" in without.stderr


def test_a_zip_file_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "opus.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("model.npz", "vocab.spm", "decoder.yml"):
            archive.write(MODEL / name, f"folder/{name}")
        for name in ("../README.md", "/README.md", "../../README.md"):
            archive.writestr(name, "about")
    found = read_model(path, None, license="CC-BY-4.0")
    assert found.importer == "marian"
    assert found.origin["name"] == "marian: opus.zip"
    assert found.origin["licence"] == "CC-BY-4.0"
    assert list(found.origin["sha256"]) == ["opus.zip"]
    assert not any(Path(folder, "README.md").exists() for folder in ("/", tempfile.gettempdir()))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other/model.npz", "x")
    with pytest.raises(ImporterError, match="has several folders; unpack it"):
        read_model(path, None)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.bin", bytes(65 << 20))
    with pytest.raises(ImporterError, match="compressed more than weights"):
        read_model(path, None)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/" * 700 + "model.bin", "x")
    with pytest.raises(ImporterError, match="has folders more than 32 deep"):
        read_model(path, None)
    path.write_bytes(path.read_bytes()[:-30])
    result = CliRunner().invoke(main, ["import", str(path), "--out", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert not (tmp_path / "run").exists()


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text", encoding="utf-8")
    for arguments, message in (
        ([str(tmp_path / "x")], "is not recognized. Formats: "),
        ([str(tmp_path / "none")], "does not exist"),
        ([str(tmp_path / "x"), "--from", "word2vec"], "`--from` must be one of "),
        ([str(tmp_path / "x"), "--from", "marian"], "must have one vocabulary or two"),
    ):
        assert message in error("import", *arguments, "--out", str(tmp_path / "run"))
        assert not (tmp_path / "run").exists()


# Options.


def options_of_model() -> dict[str, Any]:
    return dict(read_options(read_npz(MODEL / "model.npz"), MODEL / "model.npz"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("type", "s2s"),
        ("dec-cell", "gru"),
        ("transformer-ffn-activation", "tanh"),
        ("transformer-tied-layers", [1, 1]),
        ("transformer-preprocess", "dan"),
        ("transformer-postprocess", "dah"),
        ("transformer-postprocess-top", "h"),
        ("right-left", True),
    ],
)
def test_options_that_no_family_has_are_named(option: str, value: object) -> None:
    options = options_of_model()
    refuse_unknown(options)
    with pytest.raises(ImporterError, match=option):
        refuse_unknown({**options, option: value})


def test_options_become_the_configuration() -> None:
    options = options_of_model()
    arrays: Arrays = {"Wemb": np.zeros((3, 4))}
    config = model_config(arrays, {**options, "transformer-decoder-autoreg": "self-attention"})
    assert (config["family"], config["norm"], config["final_norm"]) == ("transformer", "post", False)
    top = {"transformer-postprocess-top": "n"}
    config = model_config({}, {**options, **top, "tied-embeddings-all": False, "tied-embeddings": True})
    assert (config["final_norm"], config["tied_embeddings"]) == (True, "decoder")
    assert model_config({}, {**options, "output-omit-bias": True})["output_bias"] is False
    assert model_config({}, {**options, "transformer-disable-position-embeddings": True})["positions"] == "none"


# Vocabularies.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("vocab.yml", '</s>: 0\n<unk>: 1\n"\\"": 2\n",": 3\n\'it\'\'s\': 4\na: 5\n"\\u00e9\\x41": 6\n"\x85": 7\n'),
        ("vocab.json", json.dumps({"</s>": 0, "<unk>": 1, '"': 2, ",": 3, "it's": 4, "a": 5, "éA": 6, "\x85": 7})),
        ("vocab.txt", "</s>\n<unk>\n\"\n,\nit's\na\néA\n\x85\n"),
    ],
)
def test_vocabularies_of_all_formats(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    words = ["</s>", "<unk>", '"', ",", "it's", "a", "éA", "\x85"]
    assert read_vocabulary(tmp_path / name) == {word: index for index, word in enumerate(words)}


@pytest.mark.parametrize("content", ["a\n", "a: b\n", '"a": -1\n', '"\\UFFFFFFFF": 1\n', "\ud800: 1"])
def test_damaged_vocabularies_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "vocab.yml").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ImporterError, match=r"vocab\.yml"):
        read_vocabulary(tmp_path / "vocab.yml")


@pytest.mark.parametrize(
    ("names", "sides"),
    [
        (["srcvocab.enfr.spm", "trgvocab.enfr.spm"], ["srcvocab.enfr.spm", "trgvocab.enfr.spm"]),
        (["a.tgt.vocab.yml", "b.src.vocab.yml"], ["b.src.vocab.yml", "a.tgt.vocab.yml"]),
        (["a.vocab.yml", "src.vocab.yml"], ["src.vocab.yml", "a.vocab.yml"]),
        (["target-vocab.json", "vocab.json"], ["vocab.json", "target-vocab.json"]),
        (["a.vocab.yml", "b.vocab.yml"], None),
    ],
)
def test_the_name_of_one_vocabulary_tells_the_side_of_both(
    names: list[str], sides: list[str] | None, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    model = tmp_path / "model.npz"
    if sides is None:
        with pytest.raises(ImporterError, match=r"name them in decoder\.yml"):
            find_files(model, has_options, ".npz", NO_OVERRIDES)
    else:
        found = find_files(model, has_options, ".npz", NO_OVERRIDES).text.vocabularies
        assert [file.name for file in found] == sides


def copied(folder: Path) -> Path:
    shutil.copytree(MODEL, folder)
    return folder


def rewritten(folder: Path, change: Callable[[Arrays], Mapping[str, Any]]) -> Path:
    """A copy of the model with other arrays."""
    path = copied(folder) / "model.npz"
    arrays = change(read_npz(path))
    np.savez(path, **arrays)
    return folder


def test_words_are_split_at_spaces_without_sentencepiece(tmp_path: Path) -> None:
    folder = copied(tmp_path / "m")
    (folder / "vocab.spm").unlink()
    (folder / "decoder.yml").unlink()
    words = ["</s>", "<unk>", *(f"w{index}" for index in range(1502))]
    (folder / "vocab.yml").write_text(
        "".join(f"{word}: {index}\n" for index, word in enumerate(words)), encoding="utf-8"
    )
    imported = read_marian(folder)
    assert '"WhitespaceSplit"' in imported.source_tokenizer
    assert (imported.generation.beam_size, imported.generation.length_penalty) == (4, 0)  # Marian's `normalize`


def split_vocabulary(folder: Path, change: Callable[[list[str]], object]) -> Path:
    """A copy of the model as OPUS-MT publishes it: ids in ``vocab.yml``, and a SentencePiece model for each side.

    Args:
        folder: where to write it.
        change: renames entries.
    """
    spm = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(MODEL / "vocab.spm"))
    pieces = [spm.id_to_piece(index) for index in range(spm.vocab_size())]
    change(pieces)
    copied(folder)
    (folder / "vocab.yml").write_text(
        "".join(f"{json.dumps(piece, ensure_ascii=False)}: {index}\n" for index, piece in enumerate(pieces)),
        encoding="utf-8",
    )
    for side in ("source", "target"):
        shutil.copyfile(folder / "vocab.spm", folder / f"{side}.spm")
    (folder / "vocab.spm").unlink()
    (folder / "decoder.yml").write_text("vocabs: [vocab.yml, vocab.yml]\nbeam-size: 6\n", encoding="utf-8")
    return folder


def test_codes_of_subword_nmt_are_refused(tmp_path: Path) -> None:
    folder = split_vocabulary(tmp_path / "model", lambda names: None)
    for side in ("source", "target"):
        (folder / f"{side}.spm").unlink(missing_ok=True)
        (folder / f"{side}.bpe").write_text("#version: 0.2\ne n\n")
    with pytest.raises(ImporterError, match=r"BPE codes of subword-nmt .* with `ct2-opus-mt-converter`"):
        read_marian(folder)


def test_target_languages_are_chosen_by_a_token(tmp_path: Path) -> None:
    def rename(pieces: list[str]) -> None:
        pieces[-2:] = [">>fra<<", ">>deu<<"]

    folder = split_vocabulary(tmp_path / "m", rename)
    imported = read_marian(folder)
    assert imported.text.languages == {"fra": ">>fra<<", "deu": ">>deu<<", "fr": ">>fra<<", "de": ">>deu<<"}
    assert imported.generation.beam_size == 6
    tokenizer = Tokenizer.from_content(imported.source_tokenizer, "t", imported.text)
    (ids,) = tokenizer.for_sources("en", "deu").encode_batch(["Hello >>fra<<"], special_tokens=True)
    assert tokenizer.tokens([ids[0], ids[-1]]) == [">>deu<<", "</s>"]
    assert ">>fra<<" not in tokenizer.tokens(ids)
    with pytest.raises(OptionError, match="`target_language` must be one of de, deu, fr, fra, but is `ita`"):
        tokenizer.for_sources("en", "ita")
    found = read_model(folder, "marian", source_language="en", target_language="deu")
    run = write_run(found.model, tmp_path / "run", found.origin, text=["Tom is here."])
    german = open_translator(run.path)
    assert german.translate(["Tom is here."])[0].source.ids[0] == ids[0]
    check_alignments(german, ["Tom is here.", "Tom"])
    french = german.with_languages("en", "fra")
    assert french.translate(["Tom is here."])[0].source.ids[0] == tokenizer.ids([">>fra<<"])[0]
    with pytest.raises(OptionError, match="but is `ita`"):
        german.with_languages("en", "ita")


def renamed_in_yaml(folder: Path, index: int) -> Path:
    return split_vocabulary(folder, lambda pieces: pieces.__setitem__(index, "<s>"))


def renamed_in_pieces(folder: Path, index: int) -> Path:
    protobuf = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    message = protobuf.ModelProto.FromString((copied(folder) / "vocab.spm").read_bytes())
    message.pieces[index].piece, message.pieces[index].type = "<s>", 3
    (folder / "vocab.spm").write_bytes(message.SerializeToString())
    return folder


@pytest.mark.parametrize("rename", [renamed_in_yaml, renamed_in_pieces])
def test_an_entry_with_the_name_of_the_start_token_is_another_entry(
    rename: Callable[[Path, int], Path], marian_run: Run, tmp_path: Path
) -> None:
    """The vocabularies of ``spm_train`` have an entry ``<s>``, OPUS-MT's tc-big among them. No text has it."""
    original = marian_run.source_tokenizer
    cases = expected("ssru")[:60]
    used = {index for case in cases for text in (case.source, case.beam1) for index in original.encode(text)}
    entry = next(index for index in range(1400, original.vocab_size) if index not in used)
    found = read_model(rename(tmp_path / "m", entry), None)
    run = write_run(found.model, tmp_path / "run", found.origin, text=["Tom is here."])
    assert (found.model.text.bos, run.target_tokenizer.bos_id) == ("<start>", original.bos_id)
    assert run.source_tokenizer.tokens([entry]) == ["<s>"]
    assert entry not in run.source_tokenizer.encode("<s> <start>")
    translations = open_translator(run.path).translate([case.source for case in cases], beam_size=1, length_penalty=1.0)
    assert [translation.text for translation in translations] == [case.beam1 for case in cases]


@pytest.mark.parametrize("trained", [True, False])
def test_embeddings_are_scaled_where_sinusoids_are_added(trained: bool, tmp_path: Path) -> None:
    """Marian's formula; its option alone, without the array, changes nothing."""
    rows = np.random.default_rng(0).normal(size=(40, 64)).astype(np.float32)
    option = {"transformer-train-position-embeddings": True}

    def change(arrays: Arrays) -> Arrays:
        options = yaml.safe_dump({**options_of_model(), **option}).encode()
        return {**arrays, "special:model.yml": np.frombuffer(options, np.int8), **({"Wpos": rows} if trained else {})}

    pytest.importorskip("sentencepiece")
    folder = rewritten(tmp_path / "m", change)
    found = read_model(folder, None)
    model = write_run(found.model, tmp_path / "run", found.origin, text=["Tom is here."]).load_model()
    table = read_npz(folder / "model.npz")["Wemb"]
    signal = halves(3, 64, denominator=31)
    marian = table[[5, 6, 7]] + rows[:3] if trained else table[[5, 6, 7]] * 8 + signal
    ours = model.get_submodule("source_embedding")(torch.tensor([[5, 6, 7]])).detach().numpy()[0]
    np.testing.assert_allclose(ours, marian, rtol=1e-6, atol=1e-6)
    assert model.max_source_length == (40 if trained else 512)


# Damaged files.


def without(arrays: Arrays, start: str) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith(start)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: without(arrays, "decoder_l1_rnn_Wf"), "lacks the array `decoder_l1_rnn_Wf`"),
        (
            lambda arrays: {**arrays, "encoder_l1_ffn_W1": np.zeros((3, 4), np.float32)},
            "`encoder_l1_ffn_W1` has the shape (3, 4) instead of",
        ),
        (lambda arrays: {**arrays, "Wemb": arrays["Wemb"][:-1]}, "the model has 1,503"),
        (lambda arrays: {**arrays, "Wemb": np.full_like(arrays["Wemb"], np.nan)}, "not finite"),
        (lambda arrays: without(arrays, "special"), "special:model.yml"),
    ],
)
def test_a_missing_or_misshapen_array_is_named(
    tmp_path: Path, change: Callable[[Arrays], Arrays], message: str
) -> None:
    folder = rewritten(tmp_path / "model", change)
    command = ["import", str(folder), "--from", "marian", "--out", str(tmp_path / "run")]
    assert message in error(*command)
    assert not (tmp_path / "run").exists()


def test_objects_and_bombs_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ImporterError, match="Object arrays"):
        read_npz(tmp_path / "o.npz")
    np.savez_compressed(tmp_path / "b.npz", a=np.zeros(10**6))
    with pytest.raises(ImporterError, match="compressed more than weights can be"):
        read_npz(tmp_path / "b.npz")
