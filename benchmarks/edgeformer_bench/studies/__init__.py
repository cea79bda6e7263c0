"""Measurements that are made again and again, one command per module: ``python -m edgeformer_bench.studies.NAME``."""
