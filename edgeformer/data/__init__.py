"""Parallel text: named corpora, reading, filtering, splitting, vocabularies and batches."""
