"""Altered copies of sentence pairs, so that a model copes with sources unlike its corpus."""
