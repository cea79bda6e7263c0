"""Attacks on bundles and servers, and what survives them."""
