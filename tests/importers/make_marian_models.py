"""Trains the small models of ``tests/importers/marian`` with Marian itself, and translates sentences with it.

Marian is PyPI's ``pymarian`` (600 MB), which no other test needs; run this in an environment of its own::

    pip install pymarian portalocker protobuf pyyaml requests
    python make_marian_models.py --corpus fra-eng.zip --out marian

The corpus is Tatoeba's English–French pairs as distributed by manythings.org/anki (CC-BY 2.0 FR).
"""

# ruff: noqa: T201 - a script

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

COMMON = [
    *("--type", "transformer", "--transformer-heads", "4", "--dim-emb", "64", "--transformer-dim-ffn", "128"),
    *("--workspace", "500", "--mini-batch", "128", "--maxi-batch", "100", "--max-length", "60"),
    *("--learn-rate", "0.003", "--lr-warmup", "400", "--lr-decay-inv-sqrt", "400", "--optimizer-params", "0.9", "0.98"),
    *("--label-smoothing", "0.1", "--exponential-smoothing", "--seed", "1", "--cpu-threads", "1", "--disp-freq", "100"),
    *("--overwrite", "--quiet-translation"),
]
MODELS = {
    "ssru": [
        *("--enc-depth", "2", "--dec-depth", "1", "--transformer-decoder-autoreg", "rnn", "--dec-cell", "ssru"),
        *("--transformer-ffn-activation", "relu", "--tied-embeddings-all", "--dim-vocabs", "1504", "1504"),
    ],
    "self-attention": [
        *("--enc-depth", "1", "--dec-depth", "2", "--transformer-ffn-activation", "swish"),
        *("--tied-embeddings-all", "--dim-vocabs", "1000", "1000"),
    ],
    "pre-norm": [
        *("--enc-depth", "1", "--dec-depth", "1", "--transformer-preprocess", "n", "--transformer-postprocess", "da"),
        *("--transformer-postprocess-top", "n", "--tied-embeddings", "--dim-vocabs", "800", "1000"),
    ],
}
"""Options by model: a recurrence as in Bergamot's students; self-attention; norms before sublayers, and two
vocabularies."""
SCORED = {"pre-norm"}
"""Models that score given translations instead of translating: Marian's decoder and its scorer differ in them."""
HELD_OUT = 1000


def main() -> None:
    """Train, translate and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    held_out, training = split(arguments.corpus)
    files = [arguments.out / f"train.{side}" for side in ("en", "fr")]
    for file, lines in zip(files, zip(*training, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name in arguments.models:
        folder = arguments.out / name
        folder.mkdir(exist_ok=True)
        one = "--tied-embeddings-all" in MODELS[name]
        names = ["vocab.spm"] * 2 if one else ["source.spm", "target.spm"]
        vocabularies = [str(folder / vocabulary) for vocabulary in names]
        command = [sys.executable, "-m", "pymarian", "train", "--model", str(folder / "model.npz")]
        command += ["--train-sets", *map(str, files), "--vocabs", *vocabularies, *COMMON, *MODELS[name]]
        command += ["--after-batches", str(arguments.updates), "--save-freq", f"{arguments.updates}u"]
        if not (folder / "expected.json").exists():
            subprocess.run(command, check=True)
        for vocabulary in set(vocabularies):
            forget_paths(Path(vocabulary))
        if name in SCORED:
            expected = score(folder, vocabularies, held_out)
        else:
            expected = translate(folder, vocabularies, [source for source, _ in held_out])
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=0), encoding="utf-8")
        print(name, "done")


def split(corpus: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """One translation of each English sentence: those held out, and those to train on."""
    with zipfile.ZipFile(corpus) as archive:
        member = next(name for name in archive.namelist() if name.endswith("fra.txt"))
        lines = archive.read(member).decode("utf-8").splitlines()
    pairs: dict[str, str] = {}
    for line in lines:
        english, french = line.split("\t")[:2]
        pairs.setdefault(english, french)
    shuffled = sorted(pairs.items())
    random.Random(1).shuffle(shuffled)
    return shuffled[:HELD_OUT], shuffled[HELD_OUT:]


def forget_paths(file: Path) -> None:
    """Remove the names of the files that a SentencePiece model was trained on."""
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())  # type: ignore[attr-defined] # made when imported
    del model.trainer_spec.input[:]
    model.trainer_spec.model_prefix = ""
    file.write_bytes(model.SerializeToString())


def translate(folder: Path, vocabularies: list[str], sources: list[str]) -> list[dict[str, object]]:
    """Translate with Marian, greedily and with four beams; scores are normalized by the length, end token included."""
    from pymarian import Translator

    results: list[dict[str, object]] = [{"source": source} for source in sources]
    for beam_size in (1, 4):
        translator = Translator(
            models=str(folder / "model.npz"),
            vocabs=vocabularies,
            beam_size=beam_size,
            normalize=1,
            n_best=True,
            cpu_threads=1,
            max_length_factor=3,
            quiet=True,
            quiet_translation=True,
        )
        for line in "\n".join(translator.translate(sources)).split("\n"):
            index, text, *_, score = line.split(" ||| ")
            results[int(index)].setdefault(f"beam{beam_size}", text)  # the best comes first
            results[int(index)].setdefault(f"score{beam_size}", float(score))
    return results


def score(folder: Path, vocabularies: list[str], pairs: list[tuple[str, str]]) -> list[dict[str, object]]:
    """Score translations with Marian: mean log-probability per token, end token included."""
    files = [folder / f"held-out.{side}" for side in ("en", "fr")]
    for file, lines in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "pymarian", "score", "--model", str(folder / "model.npz"), "--quiet"]
    command += ["--vocabs", *vocabularies, "--train-sets", *map(str, files), "--normalize", "--cpu-threads", "1"]
    scores = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    rows = zip(pairs, scores, strict=True)
    return [{"source": source, "target": target, "score": float(value)} for (source, target), value in rows]


if __name__ == "__main__":
    main()
