"""Weights on disk: checkpoints, resuming from them, their average, and the final model."""
