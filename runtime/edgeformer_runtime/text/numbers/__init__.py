"""Numbers: whether a translation has those of its source, and how its language writes them."""
