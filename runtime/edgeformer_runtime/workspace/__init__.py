"""Models by name and language pair, opened on demand."""
