"""Properties of a model that export measures for those who translate texts with it."""
