"""Parallel text: reading, named corpora, filters, splits and vocabularies."""
