"""Options that several commands have, declared once."""

from __future__ import annotations

from pathlib import Path

import click

data_folder = click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Folder to look for the corpus in."
)
beam = click.option(
    "--beam", type=click.IntRange(1), help="Hypotheses kept per sentence; 1 is greedy. Default: the model's."
)
length_penalty = click.option(
    "--length-penalty", type=float, help="Exponent of the length that divides the score. Default: the model's."
)
batch_tokens = click.option(
    "--batch-tokens",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    help="Bound of a batch's memory, in tokens.",
)
truncate = click.option(
    "--truncate", is_flag=True, help="Cut lines that have more tokens than the model takes; else they are an error."
)
device = click.option(
    "--device", default="cpu", show_default=True, help="cpu, or cuda; bundles for it are of fp16 or fp32."
)
threads = click.option(
    "--threads", type=click.IntRange(0), default=0, help="CPU threads; 0 takes all that this process may use."
)
worker_threads = click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    help="CPU threads of one operator; 0 divides all that this process may use among the workers.",
)
