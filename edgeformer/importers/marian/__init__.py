"""Marian's models, Bergamot's among them."""

from edgeformer.importers.marian.importer import BERGAMOT, MARIAN

__all__ = ["BERGAMOT", "MARIAN"]
