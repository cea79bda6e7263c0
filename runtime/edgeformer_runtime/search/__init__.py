"""The decode loop: batching, steps and search, independent of model family and engine."""
