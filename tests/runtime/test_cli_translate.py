"""``edgeformer translate --lines``, and what it has in common with whole texts."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeformer_runtime.translator import Translator
from edgeformer_text.results import plausible
from tests.bundles import copy_of, without_attention
from tests.commands import error, python, run

LINES = ["The old dog runs 350 times near the sea.", "", "The green river sings.", "  ", "machine"]


@pytest.fixture(scope="module")
def expected(translator: Translator) -> list[str]:
    return [translation.text for translation in translator.translate(LINES)]


def test_text_from_arguments(small_bundle: Path, expected: list[str]) -> None:
    result = run("translate", "--lines", small_bundle, *LINES)
    assert result.exit_code == 0
    assert result.stdout.split("\n") == [*expected, ""]
    assert result.stderr == ""
    assert expected[0]
    assert expected[1] == expected[3] == ""


def test_only_line_feeds_end_a_line(small_bundle: Path, translator: Translator) -> None:
    text = "dog\u2028river\x0bsea\x85house\rmachine"
    result = run("translate", "--lines", small_bundle, "--beam", "1", stdin=f"{text}\ndog\n".encode())
    expected = [translation.text for translation in translator.translate([text, "dog"], beam_size=1)]
    assert result.stdout.split("\n") == [*expected, ""]


def test_damaged_gzip_is_named(small_bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "text.GZ", tmp_path / "out"
    packed = gzip.compress("".join(f"{line}\n" for line in LINES).encode())
    for damaged in (packed[:-9], b"no gzip", packed[:20] + b"??" + packed[22:]):
        source.write_bytes(damaged)
        message = error("translate", "--lines", small_bundle, "--input", source, "--output", output)
        assert message.startswith(f"`{source}` is damaged: ")
        assert not output.exists()


def test_nbest(small_bundle: Path, translator: Translator) -> None:
    result = run("translate", "--lines", small_bundle, "--beam", "4", "--nbest", "3", LINES[0], "", LINES[2])
    first, blank, last, rest = result.stdout.split("\n\n")
    assert rest == ""
    assert blank == "0.0000\t"
    for block, text in ((first, LINES[0]), (last, LINES[2])):
        (translation,) = translator.translate([text], beam_size=4, n_best=3)
        assert block.split("\n") == [
            f"{hypothesis.score:.4f}\t{hypothesis.text}" for hypothesis in translation.hypotheses
        ]


def test_json(small_bundle: Path, translator: Translator) -> None:
    result = run("translate", "--lines", small_bundle, "--json", "--nbest", "2", *LINES)
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["source"] for record in records] == LINES
    for record, translation in zip(records, translator.translate(LINES, n_best=2), strict=True):
        assert len(record["hypotheses"]) == len(translation.hypotheses)
        for found, expected in zip(record["hypotheses"], translation.hypotheses, strict=True):
            assert (found["text"], tuple(found["tokens"]), tuple(found["ids"]), found["finished"]) == (
                expected.text,
                expected.tokens,
                expected.ids,
                expected.finished,
            )
            assert found["score"] == pytest.approx(expected.score, abs=1e-5)


def test_alternatives_and_token_scores(small_bundle: Path, translator: Translator, device: str) -> None:
    options = ["--json", "--nbest", "6", "--alternatives", "--min-alternative-prob", "0.001", "--token-scores"]
    record = json.loads(run("translate", "--lines", "--device", device, small_bundle, *options, LINES[0]).stdout)
    (translation,) = translator.translate(
        LINES[:1], n_best=6, return_alternatives=True, min_alternative_expansion_prob=0.001, return_token_scores=True
    )
    assert 1 < len(translation.hypotheses) <= 6
    assert len({hypothesis.ids[0] for hypothesis in translation.hypotheses}) == len(translation.hypotheses)
    translation = plausible(translation)
    for found, expected in zip(record["hypotheses"], translation.hypotheses, strict=True):
        assert tuple(found["ids"]) == expected.ids
        assert found["token_scores"] == pytest.approx(expected.token_scores, abs=1e-5)
        assert found["confidence"] == pytest.approx(np.exp(np.mean(found["token_scores"])), abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        (["--target-prefix", "green"], {"target_prefix": "green"}),
        (["--suppress-sequence", "green"], {"suppress_sequences": ["green"]}),
    ],
)
def test_text_of_options_reaches_the_search(
    small_bundle: Path, translator: Translator, arguments: list[str], changes: dict[str, Any]
) -> None:
    result = run("translate", "--lines", small_bundle, "--json", "--threads", "1", *arguments, *LINES)
    found = [json.loads(line)["hypotheses"][0]["ids"] for line in result.stdout.splitlines()]
    assert found == [list(translation.best.ids) for translation in translator.translate(LINES, **changes)]
    assert found != [list(translation.best.ids) for translation in translator.translate(LINES)]


def test_a_line_too_long_is_named_and_leaves_no_file(small_bundle: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("dog\n" * 700 + "x " * 300 + "\n", encoding="utf-8")  # behind the first block of lines
    options = ("--beam", "1", "--max-length", "1")
    message = error("translate", "--lines", small_bundle, "--input", source, "--output", target, *options)
    assert message.startswith("Text 701 has ")
    assert "at most 256" in message
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_lines_before_one_that_is_too_long_are_translated(small_bundle: Path, expected: list[str]) -> None:
    result = run("translate", "--lines", small_bundle, stdin="\n".join([*LINES, "x " * 300, "dog"]))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == expected
    assert f"Text {len(LINES) + 1} has " in result.stderr
    assert "set `--truncate`" in result.stderr


def test_a_line_too_long_may_be_truncated(small_bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_text("dog\n" * 700 + "x " * 300 + "\nriver\n", encoding="utf-8")
    options = ("--truncate", "--beam", "1", "--max-length", "1")
    result = run("translate", "--lines", small_bundle, "--input", source, *options)
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 702
    assert re.fullmatch(r"Text 701 was truncated: its last \d+ tokens were dropped\.\n", result.stderr)
    result = run("translate", "--lines", small_bundle, "x " * 300, "dog", "--json", *options)
    truncated, whole = map(json.loads, result.stdout.splitlines())
    assert truncated["truncated"] > 0
    assert "truncated" not in whole


def test_an_output_that_cannot_be_written_is_named(small_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    assert f"Folder `{folder}` does not exist" in error(
        "translate", "--lines", small_bundle, "--output", folder / "out", "dog"
    )
    assert f"`{tmp_path}` is a folder" in error("translate", "--lines", small_bundle, "--output", tmp_path, "dog")


def test_the_input_is_not_written_over(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("dog\n", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "text")
    for output in (tmp_path / "text", tmp_path / "link"):
        assert "is an input file" in error(
            "translate", "--lines", small_bundle, "--input", tmp_path / "text", "--output", output
        )
    assert (tmp_path / "text").read_text(encoding="utf-8") == "dog\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_as_output_is_written_and_not_replaced(small_bundle: Path, tmp_path: Path, expected: list[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    assert run("translate", "--lines", small_bundle, "--output", pipe, LINES[0]).exit_code == 0
    reader.join(timeout=30)
    assert received == [f"{expected[0]}\n"]
    assert pipe.is_fifo()


def test_a_wrong_input_is_named(small_bundle: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "missing") in error("translate", "--lines", small_bundle, "--input", tmp_path / "missing")
    assert str(tmp_path) in error("translate", "--lines", small_bundle, "--input", tmp_path)
    assert "does not exist" in error("translate", tmp_path / "missing", "dog")
    assert "not both" in error("translate", "--lines", small_bundle, "--input", tmp_path / "in", "dog", code=2)
    assert "surrogate" in error("translate", "--lines", small_bundle, "caf\udce9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "tpu"], "`--device` must be one of cpu, cuda, but is `tpu`"),
        (["--beam", "2", "--nbest", "3"], "`--nbest` must be at most `--beam` (2), but is 3"),
        (["--length-penalty", "nan"], "`--length-penalty` must be from -10 to 10, but is nan"),
        (["--min-length", "9", "--max-length", "8"], "`--min-length` must be at most `--max-length` (8), but is 9"),
        (["--sampling-topk", "3"], "`--beam` must be 1 for sampling, but is 4"),
        (["--suppress-token", "nowhere"], "`nowhere` is not a token of the target vocabulary"),
        (["--target-prefix", "\udce9"], "must be valid Unicode"),
        (["--token-scores"], "`--token-scores` needs `--json`"),
        (["--repetition-penalty", "0"], "`--repetition-penalty` must be positive and finite, but is 0.0"),
    ],
)
def test_a_wrong_value_is_an_error_even_without_text(small_bundle: Path, arguments: list[str], message: str) -> None:
    assert message in error("translate", "--lines", small_bundle, *arguments, stdin=b"")


@pytest.mark.parametrize(
    "arguments", [["--beam", "0"], ["--beam", "x"], ["--nbest", "0"], ["--batch-tokens", "0"], ["--threads", "-1"]]
)
def test_a_value_out_of_range_is_a_usage_error(small_bundle: Path, arguments: list[str]) -> None:
    assert f"Invalid value for '{arguments[0]}'" in error(
        "translate", "--lines", small_bundle, *arguments, "dog", code=2
    )


def test_output_is_utf8_whatever_the_locale(small_bundle: Path, expected: list[str]) -> None:
    code = "from edgeformer.cli import main; main()"
    done = python(
        code, "translate", "--lines", small_bundle, LINES[0], PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C"
    )
    assert done.stdout == f"{expected[0]}\n"
    assert not expected[0].isascii()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class TestAttention:
    def test_json_has_the_weights_of_the_best(
        self, small_bundle: Path, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = ["--beam", "4", "--nbest", "3", "--max-length", "12"]
        monkeypatch.chdir(tmp_path)
        plain = run("translate", "--lines", small_bundle, "--json", *options, stdin="\n".join(LINES))
        result = run("translate", "--lines", small_bundle, "--attention", "--json", *options, stdin="\n".join(LINES))
        assert (result.exit_code, result.stderr, names(tmp_path)) == (0, "", [])
        records = [json.loads(line) for line in result.stdout.splitlines()]
        found = [record.pop("attention") for record in records]
        assert records == [json.loads(line) for line in plain.stdout.splitlines()]
        expected = translator.attention(translator.translate(LINES, beam_size=4, n_best=3, max_length=12))
        for record, item, attention in zip(records, found, expected, strict=True):
            assert item["source_tokens"] == list(attention.source_tokens)
            assert item["target_tokens"] == list(attention.target_tokens)
            assert item["target_tokens"][: len(record["hypotheses"][0]["tokens"])] == record["hypotheses"][0]["tokens"]
            assert item["alignment"] == [list(pair) for pair in attention.alignment]
            assert len(item["weights"]) == len(item["target_tokens"])
            if item["weights"]:
                np.testing.assert_allclose(item["weights"], attention.weights, atol=1e-5)
                assert all(len(str(weight)) <= 8 or weight < 1e-4 for row in item["weights"] for weight in row)
        assert [not item["weights"] for item in found] == [not line.strip() for line in LINES]

    def test_a_bundle_without_weights_is_an_error_before_any_work(
        self, small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bundle = copy_of(small_bundle, tmp_path)
        without_attention(bundle)
        monkeypatch.chdir(tmp_path)
        message = error("translate", "--lines", bundle, "dog", "--output", "out", "--json", "--attention")
        assert f"Bundle `{bundle}` has no attention weights" in message
        assert names(tmp_path) == ["bundle"]
        assert (
            run("translate", "--lines", bundle, "dog").stdout == run("translate", "--lines", small_bundle, "dog").stdout
        )

    def test_it_needs_json(self, small_bundle: Path) -> None:
        assert "--attention needs --json" in error("translate", "--lines", small_bundle, "dog", "--attention", code=2)
