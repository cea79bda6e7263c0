"""Train, export, verify and run encoder-decoder models on the edge. Importing this loads no torch."""

from edgeformer_runtime import __version__

__all__ = ["__version__"]
