"""Importers: models and tokenizers that were trained elsewhere become run folders."""
