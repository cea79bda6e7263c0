"""The decode loop: batches, steps and search, for every model family and every engine."""
