"""The whole workflow on the embedded corpus: prepare, train, export, verify, translate, compare. See ``make demo``.

Every step is a command that a user could type, printed before it runs. Exits with status 1 if the int8 bundle
translates fewer than 99 % of the held-out dates, times and numbers exactly.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

LINES = ["Monday, March 3, 2031", "September 14, 1987", "8,750 kilometers", "in 3 days"]
REQUIRED = 0.99
CONSOLE = Console(highlight=False, soft_wrap=True)


def edgeformer(*arguments: str | Path, capture: bool = False) -> str:
    """Print and run a command; stop the demo if it fails."""
    words = ["edgeformer", *map(str, arguments)]
    CONSOLE.print(f"\n[bold cyan]$ {shlex.join(words)}[/bold cyan]")
    program = Path(sys.executable).with_name("edgeformer")
    done = subprocess.run([program, *words[1:]], text=True, stdout=subprocess.PIPE if capture else None, check=False)
    if done.returncode:
        raise SystemExit(f"demo: the command failed with exit code {done.returncode}")
    return done.stdout or ""


def measure(model: Path, folder: Path, *, beam: int) -> dict[str, Any]:
    """Measure scores and times of a run or a bundle on the held-out set, on one thread."""
    files = ("--source", folder / "data" / "test.en", "--reference", folder / "data" / "test.fr")
    output = edgeformer("evaluate", model, *files, "--beam", str(beam), "--threads", "1", "--json", capture=True)
    result: dict[str, Any] = json.loads(output)
    return result


def size(path: Path) -> int:
    """Compute the size of a file or folder in bytes."""
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())


@click.command()
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

    table = Table(title="Held-out dates, times and numbers, greedy, one thread", title_justify="left")
    for column in ("", "exact match %", "BLEU", "ms/sentence, batched", "MB"):
        table.add_column(column, justify="right" if column else "left")
    results = {}
    for name, model, files in (
        ("torch", run, run / "model.safetensors"),
        ("bundle fp32", fp32, fp32),
        ("bundle int8", int8, int8),
    ):
        results[name] = result = measure(model, out, beam=1)
        scores, counters = result["scores"], result["counters"]
        table.add_row(
            name,
            f"{100 * scores['exact_match']:.2f}",
            f"{scores['bleu']:.2f}",
            f"{1000 * counters['total_seconds'] / counters['sentences']:.2f}",
            f"{size(files) / 1e6:.2f}",
        )
    edgeformer("bench", int8, "--beam", "1", "--threads", "1")
    CONSOLE.print()
    CONSOLE.print(table)
    exact = results["bundle int8"]["scores"]["exact_match"]
    CONSOLE.print(f"The demo took {(time.perf_counter() - begin) / 60:.1f} minutes.")
    if exact < REQUIRED:
        raise SystemExit(f"demo: the int8 bundle has {exact:.2%} exact matches, fewer than {REQUIRED:.0%}")


if __name__ == "__main__":
    main()
