"""`export --precision auto`: the best precision within a quality budget."""
