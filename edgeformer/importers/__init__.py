"""Conversion of models and tokenizers that were trained elsewhere."""
