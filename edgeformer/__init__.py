"""Train, export, verify and run encoder-decoder models on the edge. Importing this loads no torch."""

__version__ = "0.1.0"
