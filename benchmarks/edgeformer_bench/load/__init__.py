"""A server under load, beside a plain server of the same model."""

SOURCE, LANGUAGES = "EDGEFORMER_LOAD_SOURCE", "EDGEFORMER_LOAD_LANGUAGES"
"""Environment variables of the clients: a text with a sentence per line, and a pair of languages such as ``en-fr``."""
