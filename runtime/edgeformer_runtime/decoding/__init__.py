"""The decode loop: batching, steps and search, for every model family and every engine."""
