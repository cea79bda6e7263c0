"""The models that a server has open, and what they translate."""
