"""Other engines running the same weights, for comparison. Each runs in its own process."""
