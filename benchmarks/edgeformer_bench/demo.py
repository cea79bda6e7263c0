"""The whole workflow on the embedded corpus: prepare, train, export, verify, translate, compare; then the models that
come with the repository. See ``make demo``.

Every step is a command that a user could type, printed before it runs. Exits with status 1 if the int8 bundle
translates fewer than 99 % of the held-out dates, times and numbers exactly.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import click

from edgeformer_bench.commands import Command, edgeformer, evaluate
from edgeformer_runtime.cli.output import console, table

LINES = ["Monday, March 3, 2031", "September 14, 1987", "8,750 kilometers", "in 3 days"]
REQUIRED = 0.99
MODELS = Path(__file__).parents[2] / "models"
"""The models that come with the repository."""
SENTENCES = ["Where is the train station?", "I would like a cup of tea, please.", "She didn't know what to say."]


def size(path: Path) -> int:
    """Compute the size of a file or folder in bytes."""
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())


@click.command(cls=Command)
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True, help="Folder.")
def main(out: Path) -> None:
    """Run the demo in the folder OUT, which is emptied first."""
    begin = time.perf_counter()
    if out.exists() and any(out.iterdir()) and not (out / ".demo").exists():
        raise click.ClickException(f"{out} was not made by the demo; choose another --out.")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / ".demo").touch()
    run, fp32, int8 = out / "run", out / "fp32", out / "int8"

    edgeformer("data", "prepare", "dates-en-fr", "--out", out / "data")
    edgeformer("train", "dates-en-fr", "--out", run)
    edgeformer("export", run, "--out", fp32)
    edgeformer("export", run, "--out", int8, "--precision", "int8")
    edgeformer("verify", fp32, "--checkpoint", run)
    edgeformer("verify", int8)
    edgeformer("translate", int8, *LINES)

    columns = ("", "exact match %", "BLEU", "ms/sentence, batched", "MB")
    rows = table("Held-out dates, times and numbers, greedy, one thread", *columns)
    results = {}
    for name, model, files in (
        ("torch", run, run / "model.safetensors"),
        ("bundle fp32", fp32, fp32),
        ("bundle int8", int8, int8),
    ):
        results[name] = result = evaluate(model, out / "data")
        scores, counters = result["scores"], result["counters"]
        rows.add_row(
            name,
            f"{100 * scores['exact_match']:.2f}",
            f"{scores['bleu']:.2f}",
            f"{1000 * counters['total_seconds'] / counters['sentences']:.2f}",
            f"{size(files) / 1e6:.2f}",
        )
    edgeformer("bench", int8, "--beam", "1", "--threads", "1")
    console().print()
    console().print(rows)
    exact = results["bundle int8"]["scores"]["exact_match"]
    os.environ["EDGEFORMER_MODELS"] = str(MODELS)
    edgeformer("models")
    edgeformer("translate", "en-fr", *SENTENCES)
    console().print(f"\nThe demo took {(time.perf_counter() - begin) / 60:.1f} minutes.")
    program = Path(sys.executable).with_name("edgeformer")
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    console().print("To translate in a browser, run this command in the repository and open http://127.0.0.1:5000:")
    console().print(f"$ {shown} serve", style="bold cyan")
    if exact < REQUIRED:
        raise SystemExit(f"demo: the int8 bundle has {exact:.2%} exact matches, fewer than {REQUIRED:.0%}")


if __name__ == "__main__":
    main()
