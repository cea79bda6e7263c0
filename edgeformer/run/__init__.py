"""A run on disk: what training or an import leaves, and the way back to a model."""
