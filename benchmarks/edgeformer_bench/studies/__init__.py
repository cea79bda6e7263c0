"""Measurements behind the documentation, one command per module: ``python -m edgeformer_bench.studies.NAME``."""
