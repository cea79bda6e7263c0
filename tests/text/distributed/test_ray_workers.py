"""``edgeformer translate --engine ray``."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from edgeformer_runtime.cli import text_input
from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.errors import ConfigError
from edgeformer_text.cli.block_output import BlockOutput, LineBlock
from edgeformer_text.cli.distributed import translate_file
from edgeformer_text.cli.translate import _numbered, _writer
from edgeformer_text.distributed import ray_workers
from tests.commands import error, run
from tests.ray_cluster import Cluster, command, interrupted, kill, running_cluster

WORDS = ("dog", "river", "machine", "house", "sea")
LINES = [f"The old {WORDS[i % 5]} runs {i} times near the {WORDS[i * i % 4]}." if i % 9 else "" for i in range(6000)]
BLOCKS = 12
"""Of 512 lines each."""
WIDE = ("--threads", "1", "--beam", "8", "--output")
"""Options with which all lines take some time."""


def written(folder: Path, count: int = len(LINES)) -> Path:
    path = folder / "text.en"
    path.write_text("".join(f"{line}\n" for line in LINES[:count]), encoding="utf-8")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture(scope="module")
def expected(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The translation of all lines by one process."""
    folder = tmp_path_factory.mktemp("expected")
    assert run("translate", small_bundle, *WIDE, folder / "out", "--input", written(folder)).exit_code == 0
    return (folder / "out").read_bytes()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="needs edgeformer[ray]")
    with running_cluster() as cluster:
        yield cluster


def on(cluster: Cluster) -> tuple[str, ...]:
    return "--engine", "ray", "--ray-address", cluster.address, "--workers", "2"


class TestMistakes:
    def test_ray_is_not_installed(self, small_bundle: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)
        message = error("translate", small_bundle, "--input", source, "-o", source.with_name("out"), "--engine", "ray")
        assert message == "The engine `ray` needs `ray`: pip install 'edgeformer[ray]'."
        assert [path.name for path in source.parent.iterdir()] == ["text.en"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("dog", "-o", "out"), "--engine ray needs --input FILE and --output FILE."),
            (("--input", "-", "-o", "out"), "--engine ray needs --input FILE and --output FILE."),
            (("--input", "text.en"), "--engine ray needs --input FILE and --output FILE."),
            (("--input", "text.en", "-o", "out", "--lines", "--attention"), "cannot be combined with --engine ray"),
            (("--input", "text.en", "-o", "out", "--format", "html"), "cannot be combined with --engine ray"),
            (("--input", "text.en", "-o", "out", "--target-prefix", "a"), "give --lines too"),
            (("--input", "text.html", "-o", "out.html"), "documents cannot be combined with --engine ray"),
        ],
    )
    def test_lines_of_a_file_are_needed(
        self, small_bundle: Path, source: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
    ) -> None:
        monkeypatch.chdir(source.parent)
        assert message in error("translate", small_bundle, "--engine", "ray", *options, code=2)

    def test_an_address_needs_the_engine(self, small_bundle: Path) -> None:
        assert error("translate", small_bundle, "dog", "--ray-address", "auto", code=2).startswith(
            "--ray-address needs"
        )

    def test_a_cluster_that_cannot_be_reached(self, small_bundle: Path, source: Path) -> None:
        address = "127.0.0.1:99999"
        pytest.importorskip("ray", reason="needs edgeformer[ray]")
        options = ("--input", source, "--output", source.with_name("out"), "--engine", "ray", "--ray-address", address)
        message = error("translate", small_bundle, *options)
        assert message.startswith(f"Ray cluster `{address}` cannot be reached: ")

    def test_the_output_must_be_a_file(self, small_bundle: Path, source: Path) -> None:
        pytest.importorskip("ray", reason="needs edgeformer[ray]")
        options = ("--input", source, "--engine", "ray", "--output")
        assert "is a folder" in error("translate", small_bundle, *options, source.parent)
        assert "does not exist; create it" in error("translate", small_bundle, *options, source.parent / "no/out")
        assert error("translate", small_bundle, *options, "/dev/null").startswith("`/dev/null` is not a file;")


class InThisProcess:
    """Workers without Ray, which take blocks as those on a cluster do."""

    manifest_sha256 = "0"

    def map(
        self, work: Callable[[object, LineBlock], BlockOutput], blocks: Iterable[tuple[int, LineBlock]]
    ) -> Generator[tuple[int, BlockOutput], None, None]:
        for number, block in blocks:
            yield number, work(None, block)


def shouted(translator: object, block: LineBlock) -> BlockOutput:
    return BlockOutput("".join(f"{block.first + number} {line.upper()}\n" for number, line in enumerate(block[1])), [])


def on_a_cluster(source: Path, output: Path) -> None:
    with mock.patch.object(ray_workers.RayWorkers, "of", return_value=InThisProcess()):
        translate_file(mock.Mock(), {}, None, shouted, source, output, {})


def locally(source: Path, output: Path) -> None:
    translator = mock.Mock()
    with line_blocks((), source) as blocks, _writer(output) as write:
        for block in _numbered(blocks):
            write(shouted(translator, block).text)


class TestMemory:
    @pytest.mark.parametrize(("way", "suffix"), [(on_a_cluster, ".en.gz"), (locally, ".en")])
    def test_it_does_not_grow_with_the_number_of_lines(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path, Path], None], suffix: str
    ) -> None:
        monkeypatch.setattr(text_input, "_READ_BYTES", 1 << 13)
        source, peaks = tmp_path / f"text{suffix}", []
        for count in (500, 4_000, 12_000):  # the first one imports modules
            content = b"".join(b"line %d\n" % number for number in range(count))
            source.write_bytes(gzip.compress(content, 1) if suffix == ".en.gz" else content)
            tracemalloc.start()
            way(source, tmp_path / "out")
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            expected = b"".join(b"%d LINE %d\n" % (number, number) for number in range(count))
            assert (tmp_path / "out").read_bytes() == expected
        assert peaks[2] - peaks[1] < 16_000  # two bytes a line

    def test_what_an_interruption_left_is_done_and_nothing_twice(self, source: Path) -> None:
        seen: list[int] = []

        def stop(translator: object, block: LineBlock) -> BlockOutput:
            if len(seen) == 5:
                raise KeyboardInterrupt
            seen.append(block.first)
            return shouted(translator, block)

        for _ in range(2):
            with (
                mock.patch.object(ray_workers.RayWorkers, "of", return_value=InThisProcess()),
                suppress(KeyboardInterrupt),
            ):
                translate_file(mock.Mock(), {}, None, stop, source, source.with_name("out"), {})
            assert seen == [512 * number for number in range(5)]
        on_a_cluster(source, source.with_name("out"))
        expected = "".join(f"{number} {line.upper()}\n" for number, line in enumerate(LINES))
        assert source.with_name("out").read_text(encoding="utf-8") == expected

    def test_a_file_that_changes_meanwhile_is_refused(self, source: Path) -> None:
        def change(translator: object, block: LineBlock) -> BlockOutput:
            with source.open("a", encoding="utf-8") as file:
                file.write("more\n" * 1000)
            return shouted(translator, block)

        with (
            mock.patch.object(ray_workers.RayWorkers, "of", return_value=InThisProcess()),
            pytest.raises(
                ConfigError, match=r"text\.en` was changed meanwhile; delete `.*out\.blocks` and start again"
            ),
        ):
            translate_file(mock.Mock(), {}, None, change, source, source.with_name("out"), {})
        assert not source.with_name("out").exists()


TAKEN = """
import sys
from pathlib import Path
from edgeformer_text.distributed.ray_workers import IN_FLIGHT, RayWorkers
from edgeformer_runtime.translator import Translator

def lengths(translator, block):
    return len(block)

if __name__ == "__main__":
    workers = RayWorkers.of(Translator.open(sys.argv[1], threads=1), {"workers": 2, "threads": 1}, sys.argv[2])
    taken, most, results = 0, 0, {}

    def blocks():
        global taken
        for number in range(40):
            taken += 1
            yield 3 * number, "x" * number

    for number, result in workers.map(lengths, blocks()):
        most = max(most, taken - len(results))
        results[number] = result
    assert results == {3 * number: number for number in range(40)}, results
    assert list(workers.map(lengths, [])) == []
    print(most, 2 * IN_FLIGHT + 1)
"""


@pytest.mark.slow
class TestCluster:
    def test_blocks_are_taken_as_workers_have_room(self, small_bundle: Path, cluster: Cluster, tmp_path: Path) -> None:
        (tmp_path / "taken.py").write_text(TAKEN, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, tmp_path / "taken.py", small_bundle, cluster.address],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        most, limit = map(int, done.stdout.split())
        assert 1 <= most <= limit

    @pytest.mark.parametrize("options", [("--lines", "--json", "--nbest", "2"), ()])
    def test_the_output_is_that_of_one_process(
        self, small_bundle: Path, source: Path, cluster: Cluster, options: tuple[str, ...]
    ) -> None:
        source = written(source.parent, 1200)
        one, two = source.with_name("one"), source.with_name("two")
        lines: tuple[str | Path, ...] = ("translate", small_bundle, "--input", source)
        common = (*lines, "--threads", "1", *options, "--output")
        assert run(*common, one).exit_code == 0
        done = command(*common, two, *on(cluster))
        assert done.returncode == 0, done.stderr
        assert "0 of 1,200 lines …" in done.stderr
        assert two.read_bytes() == one.read_bytes()
        assert sorted(path.name for path in source.parent.iterdir()) == ["one", "text.en", "two"]

    def test_a_killed_worker_loses_nothing(
        self, small_bundle: Path, source: Path, cluster: Cluster, expected: bytes
    ) -> None:
        two, common = source.with_name("two"), ("translate", small_bundle, "--input", source, *WIDE)
        first, killed = source.with_name("two.blocks") / f"{0:08}", []

        def kill_a_worker(process: int) -> None:
            killed.append(cluster.workers()[0])
            kill(killed[0])
            assert len(list(first.parent.glob("0*"))) < BLOCKS - 2, "there is work left"

        code, messages = interrupted(first.exists, *common, two, *on(cluster), interrupt=kill_a_worker)
        assert (code, len(killed)) == (0, 1), messages
        assert two.read_bytes() == expected

    def test_a_killed_command_is_continued(
        self, small_bundle: Path, source: Path, cluster: Cluster, expected: bytes
    ) -> None:
        two, common = source.with_name("two"), ("translate", small_bundle, "--input", source, *WIDE)
        blocks = source.with_name("two.blocks")
        code, _ = interrupted((blocks / f"{1:08}").exists, *common, two, *on(cluster), interrupt=kill)
        done = sum(path.stem.isdigit() for path in blocks.iterdir())
        assert (code, two.exists()) == (-9, False)
        assert 1 <= done < BLOCKS
        other = command(*common, two, *on(cluster), "--length-penalty", "0.5")
        assert other.returncode == 1
        assert "part of another translation, which differs in `--length-penalty`; repeat" in other.stderr
        kept = shutil.copytree(blocks, source.with_name("kept"))
        again = command(*common, two, *on(cluster))
        assert again.returncode == 0, again.stderr
        lines = sum(len((kept / path.name).read_bytes().splitlines()) for path in kept.glob("0*"))
        assert f"{lines:,} of {len(LINES):,} lines …" in again.stderr
        assert two.read_bytes() == expected

    def test_mistakes_in_workers_are_told_in_a_sentence(
        self, small_bundle: Path, source: Path, cluster: Cluster
    ) -> None:
        source.write_text("dog\n" * 600 + "z" * 700 + "\n", encoding="utf-8")
        options = ("translate", small_bundle, "--lines", "--input", source, "--output", source.with_name("out"))
        expected = error(*options)
        done = command(*options, *on(cluster))
        assert done.returncode == 1
        assert expected.startswith("Text 601 has ")
        assert done.stderr.splitlines()[-1] == f"Error: {expected}"
