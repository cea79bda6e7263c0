"""``edgeformer data``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeformer.config import DataConfig
from edgeformer.data.catalog import CORPORA
from edgeformer.data.corpora import load_corpus
from edgeformer.data.text import read_pairs
from tests.commands import error, succeeded


def test_list() -> None:
    listed = succeeded("data", "list").output
    assert all(name in listed for name in CORPORA)
    records = json.loads(succeeded("data", "list", "--json").output)
    assert [record["name"] for record in records] == list(CORPORA)
    assert all(record["license"] and record["pairs"] > 0 for record in records)


@pytest.mark.usefixtures("few_dates")
def test_prepare_and_overwrite(tmp_path: Path) -> None:
    out = tmp_path / "new" / "dates"
    assert "kept 3,000 of 3,000 pairs" in succeeded("data", "prepare", "dates-en-fr", "--out", out).output
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert report["pairs"] == {"train": 1_000, "valid": 1_000, "test": 1_000}
    assert report["provenance"]["name"] == "dates-en-fr"
    for part, size in report["pairs"].items():
        assert len(read_pairs([out / f"{part}.en", out / f"{part}.fr"])) == size
    assert [path.name for path in out.parent.iterdir()] == ["dates"]

    assert "--overwrite" in error("data", "prepare", "dates-en-fr", "--out", out)
    (out / "train.en").write_text("spoilt", encoding="utf-8")
    succeeded("data", "prepare", "dates-en-fr", "--out", out, "--overwrite")
    assert len(read_pairs([out / "train.en", out / "train.fr"])) == 1_000
    assert [path.name for path in out.parent.iterdir()] == ["dates"]


@pytest.mark.parametrize(
    ("languages", "suffixes"),
    [
        (("mi", "eo"), ("mi", "eo")),
        (("mi", ""), ("source", "target")),
        (("mi", "mi"), ("source", "target")),
        (("../mi", "eo"), ("source", "target")),
    ],
)
def test_prepare_splits_what_a_recipe_names(
    tmp_path: Path, languages: tuple[str, str], suffixes: tuple[str, str]
) -> None:
    pairs = [(f"line {number}", f"linio {number}") for number in range(50)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    recipe, out = tmp_path / "own.toml", tmp_path / "out"
    recipe.write_text(
        f'source_language = "{languages[0]}"\ntarget_language = "{languages[1]}"\n'
        '[model]\nfamily = "transformer"\npreset = "tiny"\n'
        '[data]\ntrain = ["pairs.tsv"]\nvalid_size = 5\ntest_size = 7\nseed = 3\n',
        encoding="utf-8",
    )
    result = succeeded("data", "prepare", recipe, "--out", out, "--data", tmp_path)
    assert "train 38, valid 5, test 7 pairs" in result.output
    assert "license" not in result.output
    config = DataConfig(train=("pairs.tsv",), valid_size=5, test_size=7, seed=3)
    assert read_pairs([out / f"test.{suffix}" for suffix in suffixes]) == load_corpus(config, tmp_path).test
    assert len(list(out.iterdir())) == 7
    options = ["--valid-size", "6", "--test-size", "9", "--seed", "7", "--overwrite"]
    result = succeeded("data", "prepare", recipe, "--out", out, "--data", tmp_path, *options)
    assert "valid 6, test 9 pairs" in result.output
    config = DataConfig(train=("pairs.tsv",), valid_size=6, test_size=9, seed=7)
    assert read_pairs([out / f"test.{suffix}" for suffix in suffixes]) == load_corpus(config, tmp_path).test


def test_prepare_never_replaces_other_files(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    (tmp_path / "thesis.tex").write_text("precious", encoding="utf-8")
    message = error("data", "prepare", "dates-en-fr", "--out", tmp_path, "--overwrite")
    assert "holds files that are not part of a prepared corpus" in message
    assert (tmp_path / "thesis.tex").read_text(encoding="utf-8") == "precious"
    error("data", "prepare", "dates-en-fr", "--out", tmp_path / "thesis.tex")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["prepare", "nothing", "--out", "x"], 1, "neither a corpus nor a recipe. Corpora: dates-en-fr"),
        (["prepare", "dates-en-fr"], 2, "--out"),
        (["prepare", "multi30k-en-de", "--out", "x", "--data", "absent"], 1, "check --data"),
    ],
)
def test_mistakes_have_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error("data", *args, code=code)
    assert not list(tmp_path.iterdir())
