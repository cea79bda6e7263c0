"""``edgeformer evaluate``."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from edgeformer.run.folder import Run
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.translator import Translator
from edgeformer_text import TextTranslator
from tests.commands import error, run, succeeded
from tests.factory import PAIRS

pytest.importorskip("sacrebleu")

SOURCES, REFERENCES = (list(side) for side in zip(*PAIRS[::7], strict=True))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return written(tmp_path / "test.en", SOURCES), written(tmp_path / "test.fr", REFERENCES)


def written(path: Path, lines: list[str]) -> Path:
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def evaluated(model: Path, source: Path, reference: Path, *options: str | Path) -> dict[str, Any]:
    result = succeeded("evaluate", model, "--source", source, "--reference", reference, "--json", *options)
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def test_a_model_is_perfect_against_its_own_output(small_bundle: Path, translator: Translator, tmp_path: Path) -> None:
    own = [translation.text for translation in translator.translate(SOURCES)]
    source, reference = written(tmp_path / "s", SOURCES), written(tmp_path / "r", own)
    result = evaluated(small_bundle, source, reference)
    assert result["kind"] == "bundle fp32"
    assert result["model"] == str(small_bundle)
    scores = result["scores"]
    assert scores["sentences"] == len(SOURCES)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["chrf"] == pytest.approx(100)
    assert scores["exact_match"] == 1
    assert "tok:13a" in scores["bleu_signature"]
    assert "nc:6" in scores["chrf_signature"]
    assert result["counters"]["sentences"] == len(SOURCES)


def test_output_is_what_translate_gives(
    small_bundle: Path, translator: Translator, files: tuple[Path, Path], tmp_path: Path
) -> None:
    output = tmp_path / "output.fr"
    result = evaluated(small_bundle, *files, "--output", output, "--beam", "3", "--length-penalty", "0.5")
    expected = [translation.text for translation in translator.translate(SOURCES, beam_size=3, length_penalty=0.5)]
    assert output.read_text(encoding="utf-8").split("\n") == [*expected, ""]
    matches = sum(a == b for a, b in zip(expected, REFERENCES, strict=True))
    assert result["scores"]["exact_match"] == pytest.approx(matches / len(SOURCES))
    assert 0 < result["scores"]["bleu"] < 100


def test_whole_texts_are_split_on_request(
    small_bundle: Path, taught_run: Run, translator: Translator, tmp_path: Path
) -> None:
    lines = [f"{SOURCES[0]} {SOURCES[1]} {{name}}", "word " * 400, ""]
    source, output = written(tmp_path / "s", lines), tmp_path / "o"
    assert "tokens" in error("evaluate", small_bundle, "--source", source, "--reference", source)
    assert evaluated(small_bundle, source, source, "--truncate")["truncated_sources"] == 1
    for model in (small_bundle, taught_run.path):
        result = evaluated(model, source, source, "--split", "--beam", "2", "--output", output)
        assert result["split"] is True
        assert output.read_text(encoding="utf-8").count("{name}") == 1
    expected = TextTranslator(translator).translate(lines, beam_size=2)
    evaluated(small_bundle, source, source, "--split", "--beam", "2", "--output", output)
    assert output.read_text(encoding="utf-8").split("\n") == [*(one.text for one in expected), ""]


def test_a_run_scores_as_its_bundle(small_bundle: Path, taught_run: Run, files: tuple[Path, Path]) -> None:
    bundle, torch = evaluated(small_bundle, *files), evaluated(taught_run.path, *files)
    assert torch["kind"] == "torch"
    assert torch["scores"] == bundle["scores"]
    assert torch["counters"]["tokens"] == bundle["counters"]["tokens"]


def test_the_tokenizer_is_that_of_the_signature(small_bundle: Path, files: tuple[Path, Path]) -> None:
    result = evaluated(small_bundle, *files, "--beam", "1", "--tokenize", "none")
    assert "tok:none" in result["scores"]["bleu_signature"]
    message = error("evaluate", small_bundle, "--source", files[0], "--reference", files[1], "--tokenize", "klingon")
    assert "`--tokenize` must be one of" in message


def test_what_cannot_be_evaluated_is_named(
    small_bundle: Path, taught_run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, reference = files
    short, empty = written(tmp_path / "short", REFERENCES[:-1]), written(tmp_path / "empty", [])
    missing = tmp_path / "missing"
    lengths = f"`{source}` has {len(SOURCES)} and `{short}` has {len(SOURCES) - 1}; align them"
    for model, read, compared, options, problem in (
        (small_bundle, source, short, (), lengths),
        (small_bundle, empty, empty, (), "no sentence to score"),
        (small_bundle, missing, empty, (), f"`{missing}` does not exist"),
        (missing, source, reference, (), "does not exist"),
        (small_bundle, source, reference, ("--output", missing / "o"), f"Folder `{missing}` does not exist"),
        (taught_run.path, source, reference, ("--device", "tpu"), "torch cannot use device `tpu`"),
    ):
        assert problem in error("evaluate", model, "--source", read, "--reference", compared, *options)
    assert "Missing option '--reference'" in error("evaluate", small_bundle, "--source", source, code=2)


def test_a_line_too_long_is_named_by_its_number(small_bundle: Path, tmp_path: Path) -> None:
    """Lines are sorted by length before they are translated; the number is that of the file."""
    lines = ["dog", "x " * 300, *["river"] * 300]
    source, output = written(tmp_path / "s", lines), tmp_path / "o"
    message = error("evaluate", small_bundle, "--source", source, "--reference", source, "--output", output)
    assert message.startswith("Text 2 has")
    assert not output.exists()


@pytest.mark.parametrize("which", [0, 1])
def test_an_input_is_not_written_over(small_bundle: Path, files: tuple[Path, Path], tmp_path: Path, which: int) -> None:
    before = [path.read_bytes() for path in files]
    output = tmp_path / "." / files[which].name if files[which].parent == tmp_path else files[which]
    message = error("evaluate", small_bundle, "--source", files[0], "--reference", files[1], "--output", output)
    assert "is an input file; give another name" in message
    assert [path.read_bytes() for path in files] == before


def test_perplexity_of_a_bundle_is_that_of_its_run(
    small_bundle: Path, taught_run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    source, reference = files
    expected = math.exp(negative_log_likelihood(taught_run, list(zip(SOURCES, REFERENCES, strict=True))))
    for model in (small_bundle, taught_run.path):
        result = evaluated(model, source, reference, "--perplexity", "--beam", "1")["perplexity"]
        assert result["perplexity"] == pytest.approx(expected, rel=1e-4)
        assert result["left_out"] == 0
    # Pairs without text on both sides, or with too long a reference, are counted but not scored.
    source = written(tmp_path / "s", [*SOURCES, "", "dog", "dog"])
    reference = written(tmp_path / "r", [*REFERENCES, "chien", "", "chien " * 50])
    more = evaluated(small_bundle, source, reference, "--perplexity", "--beam", "1")["perplexity"]
    assert more == {**result, "perplexity": pytest.approx(expected, rel=1e-4), "left_out": 3}
    table = run("evaluate", small_bundle, "--source", source, "--reference", reference, "--beam", "1", "--perplexity")
    assert f"{more['perplexity']:.2f}" in table.stdout


def negative_log_likelihood(taught: Run, pairs: list[tuple[str, str]]) -> float:
    """Mean per token in nats, from the teacher-forced pass over one pair at a time."""
    model, total, tokens = taught.load_model(), 0.0, 0
    special = SpecialTokens()
    for source, target in pairs:
        read = torch.tensor([[*taught.source_tokenizer.encode(source), special.eos]])
        labels = torch.tensor([*taught.target_tokenizer.encode(target), special.eos])
        shifted = torch.cat([torch.tensor([special.bos]), labels[:-1]])
        with torch.no_grad():
            logits = model(read, torch.tensor([read.shape[1]]), shifted[None])
        logits[..., list(special.suppress)] = -torch.inf
        total += functional.cross_entropy(logits[0], labels, reduction="sum").item()
        tokens += len(labels)
    return total / tokens


def test_lowercase_ignores_case(small_bundle: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    source, reference = files
    upper = written(tmp_path / "upper", [line.upper() for line in REFERENCES])
    plain = evaluated(small_bundle, source, reference, "--beam", "1", "--lowercase")["scores"]
    assert evaluated(small_bundle, source, upper, "--beam", "1", "--lowercase")["scores"] == plain
    assert "case:lc" in plain["bleu_signature"]
    assert evaluated(small_bundle, source, upper, "--beam", "1")["scores"]["bleu"] < plain["bleu"]
