"""Marian's models, Bergamot's among them."""

from edgeformer.importers.marian.model import BERGAMOT, MARIAN

__all__ = ["BERGAMOT", "MARIAN"]
