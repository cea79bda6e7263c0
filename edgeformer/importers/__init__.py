"""Importers: models and tokenizers that were trained elsewhere become run folders.

What reads raises ``ImporterError``, with a sentence for users, for a file that is missing, damaged, larger than its
limit or of a kind that is not supported, and for a model with something that the families cannot represent. So does
what refuses or requires something. Docstrings here name other errors, and reasons beyond these.
"""
