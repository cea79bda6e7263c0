"""``python -m edgeformer_bench.grid``."""

from edgeformer_bench.grid.cli import main

main(prog_name="python -m edgeformer_bench.grid")
