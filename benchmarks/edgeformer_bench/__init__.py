"""Benchmarks: latency and memory of bundles, and comparisons with other engines."""
