"""The command behind ``make gpu``: ``python -m edgeformer_bench.gpu``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from edgeformer.run.folder import METRICS_FILE, Run
from edgeformer_bench.commands import Command
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.peers.systems import PeerOptions, ours, peer
from edgeformer_bench.rounds import Contest, Workload
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.engine.cpus import available_cpus
from edgeformer_runtime.engine.onnx_session import checked_device
from edgeformer_runtime.errors import DeviceError, EdgeformerError
from edgeformer_runtime.selfcheck.machine import machine_summary

Figures = dict[str, float | str]

TRAININGS = {
    "cuda": {
        "model": "multi30k-en-fr model.preset=base model.norm=pre train.learning_rate=1e-3 train.warmup_steps=200 "
        "train.batch_tokens=12288 train.max_minutes=0.6",
        "multi30k-en-fr": "multi30k-en-fr train.max_minutes=0.15",
        "LSTM with attention": "multi30k-en-fr-lstm-attention train.max_steps=500",
        "LSTM": "dates-en-fr-lstm train.max_steps=500",
    },
    "cpu": {
        "model": "dates-en-fr train.max_steps=150",
        "LSTM with attention": "dates-en-fr-lstm-attention train.max_steps=10",
        "LSTM": "dates-en-fr-lstm train.max_steps=10",
    },
}
"""Recipes and settings of trainings by device and name; ``model`` is the one that is exported."""
TESTS = [f"tests/{name}.py" for name in ("export/test_cuda", "runtime/test_onnx_state", "runtime/test_translator")]
"""Tests of what differs between devices."""
PRECISIONS = ("fp32", "fp16")
CALLS = {"1x1": (1, 1), "1x4": (1, 4), "32x4": (32, 4), "128x1": (128, 1)}
"""Sentences per call and hypotheses kept, by name."""
SENTENCES = 128
"""Sentences of the training text on which bundles are compared with the model, and which timed calls translate."""
ROUNDS = {"cuda": 10, "cpu": 1}


@click.command(cls=Command)
@click.option("--data", type=click.Path(path_type=Path), help="Folder with the corpus files. Default: download them.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def main(data: Path | None, as_json: bool) -> None:
    """Train, test, compare with PyTorch and time decoding on a GPU, in at most five minutes.

    Without a GPU, the same is done with small models on the CPU. Exits with 1 if something failed.
    """
    import torch

    device, machine, rows, begin = "cuda", machine_summary(), dict[str, Figures](), time.monotonic()
    try:
        checked_device("cuda")
        machine = f"{torch.cuda.get_device_name()}, {machine}"
    except (DeviceError, RuntimeError, AssertionError) as error:  # the last two are torch's
        device, rows["CUDA"] = "cpu", {"not run": str(error)}

    def work(name: str, do: Callable[[], Figures]) -> None:
        try:
            rows[name] = do()
        except EdgeformerError as error:
            rows[name] = {"failed": str(error)}
        click.echo(f"{time.monotonic() - begin:4.0f} s  {name}", err=True)

    with TemporaryDirectory() as path, ThreadPoolExecutor() as pool:
        folder = Path(path)
        for name, recipe in TRAININGS[device].items():
            work(f"training {name}", partial(_train, recipe, data, folder / name))
        # None of these is timed, so they may share the machine.
        parts = {f"parity {precision}": partial(_compare, folder, precision, device) for precision in PRECISIONS}
        list(pool.map(work, *zip(("tests", partial(_test, device)), *parts.items(), strict=True)))
        work("decoding", partial(_decode, folder, device, rows))
    if as_json:
        print_json({"machine": machine, "device": device, "seconds": time.monotonic() - begin, "rows": rows})
    else:
        lines = table(f"{machine}, {time.monotonic() - begin:.0f} s", "", "")
        for name, figures in rows.items():
            texts = (f"{key} {value if isinstance(value, str) else f'{value:,.4g}'}" for key, value in figures.items())
            lines.add_row(name, ", ".join(texts))
        console().print(lines)
    sys.exit(any("failed" in figures for figures in rows.values()))


def _run(*command: str) -> str:
    """Run a module in a process of its own, and return what it prints.

    Raises:
        PeerError: it failed.
    """
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode:
        text = done.stderr.strip() or done.stdout.strip() or f"It ended with {done.returncode}."
        raise PeerError(text.splitlines()[-1])
    return done.stdout


def _train(recipe: str, data: Path | None, out: Path) -> Figures:
    # Validations are not what is timed.
    name, *settings = [*recipe.split(), "train.validate_every=1000000", "train.validate_sentences=100"]
    options = [argument for setting in settings for argument in ("--set", setting)]
    _run("edgeformer", "train", name, "--out", str(out), *(["--data", str(data)] if data else []), *options)
    with (out / METRICS_FILE).open(encoding="utf-8") as file:
        last = [row for row in csv.DictReader(file) if row["tokens_per_second"]][-1]
    run = Run.open(out)
    run.write_sample(run.sample[:SENTENCES])
    figures: Figures = {"updates": run.info.steps, "updates/s": int(last["step"]) / (60 * float(last["minutes"]))}
    return figures | {"target tokens/s": run.info.tokens_per_second, "BLEU": run.info.validations[-1].bleu}


def _test(device: str) -> Figures:
    return {"pytest": _run("pytest", "-q", "--device", device, *TESTS).strip().splitlines()[-1].strip("= ")}


def _compare(folder: Path, precision: str, device: str) -> Figures:
    """Export the model, and compare the bundle with it on the device."""
    run, bundle = str(folder / "model"), str(folder / precision)
    _run("edgeformer", "export", run, "--out", bundle, "--precision", precision)
    report = json.loads(_run("edgeformer", "verify", bundle, "--checkpoint", run, "--device", device, "--json"))
    parity = report["parity"]
    same = {f"same with beam {part['beam_size']}": part["identical"] / part["sentences"] for part in parity["tokens"]}
    return {**same, "largest difference of a logit": parity["logits"]["max_difference"]}


def _decode(folder: Path, device: str, rows: dict[str, Figures]) -> Figures:
    """Time a call of each kind in alternating rounds, compare its output with PyTorch's, and add a row per system."""
    run, options = Run.open(folder / "model"), PeerOptions(threads=min(4, available_cpus()), device=device)
    bundles = ours({f"edgeformer {name}": folder / name for name in PRECISIONS}, options.threads, device)
    (torch_eager,) = peer("torch", run.path, folder, options)
    others = []
    try:
        if device == "cpu":
            raise PeerError("Its float16 needs a GPU.")
        others = peer("ctranslate2", run.path, folder, options)
    except PeerError as error:
        rows["CTranslate2"] = {"not run": str(error)}
    sources = [run.source_tokenizer.encode(source) for source, _ in run.sample]
    calls = [Workload(beam_size=beams, sources=sources[:sentences]) for sentences, beams in CALLS.values()]
    with closing(Contest([*bundles, torch_eager, *others])) as contest:
        scores = contest.run(calls, rounds=ROUNDS[device], turn_seconds=0.2)
        outputs = [contest.outputs(call) for call in calls]
        errors = contest.errors
    for system in (*bundles, torch_eager, *others):
        if error := errors.get(system.name):
            rows[system.name] = {"not run" if system in others else "failed": error}
            continue
        times = scores[system.name].paired()  # (rounds, calls), in seconds
        same = [
            mine == theirs
            for each in outputs
            for mine, theirs in zip(each[system.name], each.get(torch_eager.name, ()), strict=False)
        ]
        rows[system.name] = {
            f"{name} ms": 1000 * float(np.median(column)) for name, column in zip(CALLS, times.T, strict=True)
        }
        rows[system.name] |= {"same": sum(same) / max(1, len(same))}
    return {"rounds": ROUNDS[device]}


if __name__ == "__main__":
    main()
