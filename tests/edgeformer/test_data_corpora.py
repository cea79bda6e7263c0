"""Loading of corpora from folders, the cache, the network and a user's own files."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from edgeformer.config import DataConfig
from edgeformer.data import corpora, download
from edgeformer.data.catalog import CORPORA, CorpusEntry, PinnedFile
from edgeformer.data.corpora import load_corpus
from edgeformer.data.prepare import ensure_writable, write_corpus
from edgeformer.errors import ConfigError, DataError
from edgeformer.staged_folder import can_be_replaced, staged_folder
from edgeformer_runtime.files import write_atomically
from tests.model_server import Server, serving

SHARED_DATA = Path(__file__).parents[2].parent / "shared" / "data"
PARTS = {"train": 40, "val": 5, "test": 4}


def content(part: str, language: str) -> bytes:
    lines = [f"{part} {language} {number}" for number in range(PARTS[part])]
    lines += {"train": ["", lines[0]], "val": [lines[0]], "test": [""]}[part]  # to be filtered from train alone
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as served:
        yield served


@pytest.fixture
def corpus(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CorpusEntry:
    """A named corpus served over HTTP, and an empty cache."""

    def pinned(part: str) -> tuple[PinnedFile, ...]:
        files = []
        for language in ("en", "fr"):
            name = f"{part}.{language}"
            server.add(f"/{name}.gz", gzip.compress(content(part, language)))
            sha256 = hashlib.sha256(content(part, language)).hexdigest()
            files.append(PinnedFile(folder="toy", name=name, url=f"{server.url}/{name}.gz", sha256=sha256))
        return tuple(files)

    toy = replace(
        CORPORA["multi30k-en-fr"], name="toy", train=pinned("train"), valid=pinned("val"), test=pinned("test")
    )
    monkeypatch.setattr(corpora, "CORPORA", MappingProxyType({"toy": toy}))
    monkeypatch.setenv("EDGEFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return toy


def place(server: Server, folder: Path, suffix: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (packed, _) in server.contents.items():
        path = folder / f"{name.strip('/').removesuffix('.gz')}{suffix}"
        path.write_bytes(packed if suffix else gzip.decompress(packed))


@pytest.mark.usefixtures("corpus")
def test_what_is_downloaded_is_kept_and_only_its_training_part_filtered(server: Server) -> None:
    loaded = load_corpus(DataConfig(corpus="toy"))
    assert len(server.requests) == 6
    assert (loaded.report.kept, loaded.report.empty, loaded.report.duplicate) == (40, 1, 1)
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == (40, 6, 5)
    assert loaded.test[-1] == ("", "")
    assert (loaded.source_language, loaded.target_language) == ("en", "fr")
    assert loaded.provenance.name == "toy"
    assert loaded.provenance.sha256["val.fr"] == hashlib.sha256(content("val", "fr")).hexdigest()

    again = load_corpus(DataConfig(corpus="toy"))
    assert list(again.train) == list(loaded.train)
    assert (again.valid, again.test, again.provenance) == (loaded.valid, loaded.test, loaded.provenance)
    assert len(server.requests) == 6
    kept = sorted(path.name for path in (download.cache_folder() / "toy").iterdir())
    assert kept == sorted(name.strip("/") for name in server.contents)


@pytest.mark.usefixtures("corpus")
def test_repeated_pairs_are_kept_if_the_recipe_says_so() -> None:
    loaded = load_corpus(DataConfig(corpus="toy", keep_repeated=True))
    assert (loaded.report.kept, loaded.report.empty, loaded.report.duplicate) == (41, 1, 0)
    first, *_, last = loaded.train
    assert last == first


@pytest.mark.usefixtures("corpus")
@pytest.mark.parametrize(("subfolder", "suffix"), [("", ".gz"), ("toy", "")])
def test_local_folder_comes_first(server: Server, tmp_path: Path, subfolder: str, suffix: str) -> None:
    place(server, tmp_path / "data" / subfolder, suffix)
    loaded = load_corpus(DataConfig(corpus="toy"), tmp_path / "data")
    assert len(loaded.train) == 40
    assert server.requests == []


@pytest.mark.usefixtures("corpus")
def test_wrong_local_file(server: Server, tmp_path: Path) -> None:
    place(server, tmp_path / "data", "")
    (tmp_path / "data" / "val.fr").write_bytes(b"other\n")
    with pytest.raises(DataError, match=r"val\.fr` has SHA-256 .* pinned to .* Remove the file"):
        load_corpus(DataConfig(corpus="toy"), tmp_path / "data")


@pytest.mark.usefixtures("corpus")
def test_changed_download_is_not_cached(server: Server) -> None:
    server.add("/train.en.gz", gzip.compress(b"other\n"))
    with pytest.raises(DataError, match=r"train\.en\.gz` has SHA-256 .* The site has changed the file"):
        load_corpus(DataConfig(corpus="toy"))
    assert not list(download.cache_folder().rglob("*"))


@pytest.mark.usefixtures("corpus")
def test_an_endless_download_is_stopped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 100_000)
    server.add("/train.en.gz", os.urandom(400_000))
    with pytest.raises(DataError, match=r"`train\.en\.gz` was stopped after 100,000 bytes"):
        load_corpus(DataConfig(corpus="toy"))
    assert not list(download.cache_folder().rglob("*"))


@pytest.mark.usefixtures("corpus")
def test_download_is_tried_again(server: Server) -> None:
    server.failures = {"/train.en.gz": [503], "/val.en.gz": [500]}
    server.breaks = {"/train.en.gz": [20]}
    assert len(load_corpus(DataConfig(corpus="toy")).train) == 40
    assert server.requests.count("/train.en.gz") == 3


@pytest.mark.usefixtures("corpus")
def test_download_gives_up(server: Server) -> None:
    server.breaks = {"/train.en.gz": [20] * 9}
    with pytest.raises(DataError, match=r": the connection broke off\. .* give that with --data"):
        load_corpus(DataConfig(corpus="toy"))
    assert server.requests == ["/train.en.gz"] * 3
    del server.contents["/train.en.gz"]
    server.breaks, server.requests[:] = {}, []
    with pytest.raises(DataError, match="404"):
        load_corpus(DataConfig(corpus="toy"))
    assert server.requests == ["/train.en.gz"]


def test_what_is_written_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"content")
        with staged_folder(tmp_path / "folder"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "folder")]
    assert modes == [0o640, 0o750]


def folder_with(path: Path, name: str) -> Path:
    path.mkdir()
    (path / name).write_text(name)
    return path


def test_a_staged_folder_replaces_only_what_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder_with(tmp_path / "run", "old")
    with pytest.raises(OSError, match="not empty"), staged_folder(target):
        pass
    with staged_folder(target, overwrite=True) as staged:
        (staged / "new").touch()
    assert [path.name for path in target.iterdir()] == ["new"]

    replace_really = Path.replace

    def fail_once(self: Path, to: Path) -> Path:
        if self.name == "incoming":
            raise OSError("disk full")
        return replace_really(self, to)

    monkeypatch.setattr("edgeformer.staged_folder.exchange_names", lambda first, second: False)
    monkeypatch.setattr(Path, "replace", fail_once)
    with pytest.raises(OSError, match="disk full"), staged_folder(target, overwrite=True):
        pass
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["run", "run/new"]


def test_the_current_folder_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not can_be_replaced(Path())
    assert not can_be_replaced(Path("/"))
    assert can_be_replaced(folder_with(tmp_path / "run", "file"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(DataError, match=r"`\.` is the current folder"):
        ensure_writable(Path(), overwrite=False)


def test_zip_member_of_a_pinned_archive(corpus: CorpusEntry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "pairs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        lines = [f"source {number}\ttarget {number}.{extra}\tcredit" for number in range(30) for extra in range(2)]
        archive.writestr("pairs.txt", "\n".join(lines))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    file = PinnedFile(folder="toy", name=path.name, url="http://127.0.0.1:9/", sha256=sha256, member="pairs.txt")
    toy = replace(corpus, train=(file,), valid=(), test=())
    monkeypatch.setattr(corpora, "CORPORA", {"toy": toy})
    loaded = load_corpus(DataConfig(corpus="toy", valid_size=5, test_size=6), tmp_path)
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == (38, 10, 12)
    monkeypatch.setattr(corpora, "CORPORA", {"toy": replace(toy, train=(replace(file, sha256="0" * 64),))})
    with pytest.raises(DataError, match=r'data\.train = \["pairs\.zip:pairs\.txt"\]'):
        load_corpus(DataConfig(corpus="toy"), tmp_path)


def own_files(folder: Path) -> None:
    (folder / "train.tsv").write_text("".join(f"s{n}\tt{n}\n" for n in range(20)), encoding="utf-8")
    (folder / "valid.en").write_text("v\nv\n", encoding="utf-8")
    (folder / "valid.fr").write_text("w\nw\n", encoding="utf-8")


@pytest.mark.parametrize("corpus", [None, "", ()])
def test_own_files_in_the_data_folder(tmp_path: Path, corpus: str | tuple[str, ...] | None) -> None:
    own_files(tmp_path)
    config = DataConfig(corpus=corpus, train=("train.tsv",), valid=("valid.en", "valid.fr"), test_size=3)
    loaded = load_corpus(config, tmp_path)
    assert (len(loaded.train), loaded.valid, len(loaded.test)) == (17, [("v", "w")] * 2, 3)
    assert loaded.provenance.name == "files"
    assert set(loaded.provenance.sha256) == {"train.tsv", "valid.en", "valid.fr"}


def test_own_files_that_are_empty_or_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path)
    monkeypatch.chdir(tmp_path)  # where they are looked for
    config = DataConfig(train=("train.tsv",), valid_size=1, test_size=1)
    loaded = load_corpus(config)
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == (18, 1, 1)
    with pytest.raises(DataError, match="has 20; lower these sizes"):
        load_corpus(DataConfig(train=("train.tsv",)))
    (tmp_path / "empty.tsv").touch()
    for part in ("valid", "test"):
        with pytest.raises(DataError, match=r"empty\.tsv` must hold sentence pairs, but is empty"):
            load_corpus(msgspec.structs.replace(config, **{part: ("empty.tsv",)}))


def test_wrong_configurations(tmp_path: Path) -> None:
    for config in (DataConfig(), DataConfig(corpus="dates-en-fr", train=("x",))):
        with pytest.raises(ConfigError, match="either"):
            load_corpus(config)
    with pytest.raises(ConfigError, match=r"one of dates-en-fr, .* or a folder written by .*, but is `x`"):
        load_corpus(DataConfig(corpus="x"))
    with pytest.raises(DataError, match="does not exist; check --data"):
        load_corpus(DataConfig(corpus="dates-en-fr"), tmp_path / "absent")


@pytest.mark.usefixtures("few_dates")
def test_generated_corpus() -> None:
    loaded = load_corpus(DataConfig(corpus="dates-en-fr"))
    assert (len(loaded.train), len(loaded.valid), len(loaded.test)) == (1_000, 1_000, 1_000)
    assert len(loaded.provenance.sha256["generated"]) == 64


@pytest.mark.slow
@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason="needs the corpora in ../shared/data")
@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if any(file.url for file in corpus.train)])
def test_pins_fit_the_real_files(name: str) -> None:
    loaded = load_corpus(DataConfig(corpus=name), SHARED_DATA)
    sources = [{source for source, _ in part} for part in (loaded.train, loaded.valid, loaded.test)]
    if name.startswith("multi30k"):
        assert (loaded.report.total, len(loaded.valid), len(loaded.test)) == (29_000, 1_014, 1_000)
    else:
        assert loaded.report.total == CORPORA[name].pairs
        assert (len(sources[1]), len(sources[2])) == (1_000, 1_000)
        assert sources[0].isdisjoint(sources[1] | sources[2])
        assert sources[1].isdisjoint(sources[2])


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the corpora ``a`` and ``b``, which share sentences, and ``c``, from French."""
    rows = {
        "a": [(f"Word {number}.", f"Mot {number}.") for number in range(60)],
        "b": [(f"word {number}", f"terme {number}") for number in range(40, 100)],
    }
    entries = {}
    for name, pairs in rows.items():
        content = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
        (tmp_path / f"{name}.tsv").write_bytes(content)
        file = PinnedFile(folder="x", name=f"{name}.tsv", url="", sha256=hashlib.sha256(content).hexdigest())
        entries[name] = replace(CORPORA["tatoeba-en-fr"], name=name, train=(file,), license=f"license of {name}")
    entries["c"] = replace(entries["a"], name="c", source_language="fr", target_language="en", target_first=True)
    entries["tok"] = replace(entries["a"], name="tok", tokenized=True)
    monkeypatch.setattr(corpora, "CORPORA", MappingProxyType(entries))
    return tmp_path


def sources(pairs: list[tuple[str, str]]) -> list[str]:
    return [source.casefold().rstrip(".") for source, _ in pairs]


def test_several_corpora(several: Path) -> None:
    config = DataConfig(corpus=("a", "b"), valid_size=10, test_size=10)
    loaded = load_corpus(config, several)
    one, other = (load_corpus(msgspec.structs.replace(config, corpus=name), several) for name in ("a", "b"))
    assert loaded.valid == one.valid + other.valid
    assert loaded.test == one.test + other.test
    held_out = {*sources(loaded.valid), *sources(loaded.test)}
    both = [*one.train, *other.train]
    assert list(loaded.train) == [pair for pair in both if sources([pair])[0] not in held_out]
    assert len(loaded.train) < len(both), "they share sentences"
    assert loaded.report.kept == 120
    assert loaded.provenance.name == "a + b"
    assert loaded.provenance.licence == "a: license of a; b: license of b"
    assert set(loaded.provenance.sha256) == {"a/a.tsv", "b/b.tsv"}
    assert (loaded.source_language, loaded.target_language) == ("en", "fr")


def test_a_corpus_that_is_listed_twice_counts_twice(several: Path) -> None:
    once, twice = (
        load_corpus(DataConfig(corpus=names, valid_size=5, test_size=5), several) for names in (("a",), ("a", "a"))
    )
    assert list(twice.train) == list(once.train) * 2
    assert twice.provenance.name == once.provenance.name == "a"


def test_a_folder_beside_named_corpora(several: Path) -> None:
    config = DataConfig(corpus="a", valid_size=5, test_size=5)
    prepared = load_corpus(config, several)
    write_corpus(prepared, several / "folder")
    loaded = load_corpus(msgspec.structs.replace(config, corpus=("folder", "folder")), several)
    assert list(loaded.train) == [*prepared.train] * 2
    assert loaded.valid == prepared.valid * 2
    assert loaded.provenance.name == "a"


def test_corpora_that_cannot_be_combined(several: Path) -> None:
    for other, problem in {
        "c": r"must have the same languages, but have en → fr, fr → en",
        "tok": r"`tok` has tokenized text and cannot be combined",
        "x": r"must be one of a, b, .* but is `x`",
    }.items():
        with pytest.raises(ConfigError, match=problem):
            load_corpus(DataConfig(corpus=("a", other), valid_size=5, test_size=5), several)
