"""The command behind ``make gpu``: ``python -m edgeformer_bench.gpu``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from edgeformer.run.folder import METRICS_FILE, Run
from edgeformer_bench.commands import Command
from edgeformer_bench.compare import PeerSelection, compare
from edgeformer_bench.latency import BenchmarkOptions
from edgeformer_bench.peers.base import PeerError
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.engines.cpus import available_cpus
from edgeformer_runtime.engines.onnx import check_device
from edgeformer_runtime.errors import DeviceError, EdgeformerError

Figures = dict[str, float | str]

TRAININGS = {
    "cuda": {
        "model": "multi30k-en-fr model.preset=base model.norm=pre train.learning_rate=1e-3 train.batch_tokens=12288 "
        "train.warmup_steps=150 train.cooldown_steps=150 train.max_steps=650 train.max_minutes=1",
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
"""Measured rounds by device."""


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
        check_device("cuda")
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
        parts = {"tests": partial(_test, device)}
        parts |= {f"parity {name}": partial(_compare, folder, name, device) for name in PRECISIONS}
        list(pool.map(work, parts, parts.values()))
        work("decoding", partial(_decode, folder, device, rows))
    if as_json:
        print_json({"machine": machine, "device": device, "seconds": time.monotonic() - begin, "rows": rows})
    else:
        lines = table(f"{machine}, {time.monotonic() - begin:.0f} s", "", "")
        lines.columns[1].justify = "left"
        for name, figures in rows.items():
            lines.add_row(name, ", ".join(f"{key}: {_text(value)}" for key, value in figures.items()))
        console().print(lines)
    sys.exit(any("failed" in figures for figures in rows.values()))


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _run(*command: str, statuses: tuple[int, ...] = (0,)) -> str:
    """Run a module in a process of its own, and return what it prints.

    Raises:
        PeerError: it ended with another exit status, or with 1 and without a result.
    """
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode not in statuses or (done.returncode and not done.stdout):  # a traceback
        raise PeerError((done.stderr.strip() or f"It ended with {done.returncode}.").splitlines()[-1])
    return done.stdout


def _train(recipe: str, data: Path | None, out: Path) -> Figures:
    name, *settings = recipe.split()
    settings += ["train.validate_every=1000000", "train.validate_sentences=100"]  # which are not what is timed
    options = [argument for setting in settings for argument in ("--set", setting)]
    _run("edgeformer", "train", name, "--out", str(out), *(["--data", str(data)] if data else []), *options)
    with (out / METRICS_FILE).open(encoding="utf-8") as file:
        last = [row for row in csv.DictReader(file) if row["tokens_per_second"]][-1]
    run = Run.open(out)
    run.write_sample(run.sample[:SENTENCES])
    figures: Figures = {"updates": run.info.steps, "updates/s": int(last["step"]) / (60 * float(last["minutes"]))}
    return figures | {"target tokens/s": run.info.tokens_per_second, "BLEU": run.info.validations[-1].bleu}


def _test(device: str) -> Figures:
    result = _run("pytest", "-q", "--device", device, *TESTS, statuses=(0, 1)).strip().splitlines()[-1]
    return {"failed" if "failed" in result or "error" in result else "pytest": result}


def _compare(folder: Path, precision: str, device: str) -> Figures:
    """Export the model, and compare the bundle with it on the device."""
    run, bundle = str(folder / "model"), str(folder / precision)
    _run("edgeformer", "export", run, "--out", bundle, "--precision", precision)
    arguments = ("verify", bundle, "--checkpoint", run, "--device", device, "--json")
    report = json.loads(_run("edgeformer", *arguments, statuses=(0, 1)))
    if not report["passed"]:
        return {"failed": " ".join(report["problems"])}
    parity = report["parity"]
    same = {f"same with beam {part['beam_size']}": part["identical"] / part["sentences"] for part in parity["tokens"]}
    return {**same, "largest difference of a logit": parity["logits"]["max_difference"]}


def _decode(folder: Path, device: str, rows: dict[str, Figures]) -> Figures:
    """Time a call of each kind in alternating rounds, compare outputs with the fp32 bundle's, and add a row per
    system."""
    run = Run.open(folder / "model")
    sources = [run.source_tokenizer.encode(source) for source, _ in run.sample]
    ctranslate2 = ["ctranslate2"] if device == "cuda" and find_spec("ctranslate2") else []  # its float16 needs a GPU
    against = PeerSelection(peers=("torch", *ctranslate2), run=run.path, work=folder)
    threads = min(4, available_cpus())
    for name, (sentences, beams) in CALLS.items():
        options = BenchmarkOptions(
            beam_size=beams, batch_size=sentences, repeat=ROUNDS[device], device=device, threads=threads
        )
        result = compare([folder / precision for precision in PRECISIONS], sources[:sentences], options, against)
        for system in result.systems:
            figures = rows.setdefault(system.system, {})
            if system.timing is None:
                figures["failed"] = system.error
            else:
                figures |= {f"{name} ms": system.timing.median_ms, f"{name} same": f"{system.identical}"}
    return {"rounds": ROUNDS[device]}


if __name__ == "__main__":
    main()
