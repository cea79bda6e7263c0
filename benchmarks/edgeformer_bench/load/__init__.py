"""A server under load: whether it keeps its promises."""
