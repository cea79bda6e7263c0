"""A server under load: whether it keeps its promises, and how it compares with a plain server of the same model."""
