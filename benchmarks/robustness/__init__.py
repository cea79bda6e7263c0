"""Attacks on bundles, servers and what is written: what survives, and which planted bugs the tests notice."""
