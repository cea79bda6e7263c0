"""What export measures of a model for those who translate texts with it."""
