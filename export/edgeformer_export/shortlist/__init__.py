"""Shortlists: which target tokens a source token may become, and the graphs that score only these."""
