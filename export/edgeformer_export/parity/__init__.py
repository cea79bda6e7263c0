"""Comparison of a bundle with its torch model."""
